-- After get.lua or find.lua: `id` and `expires` of the lock that is stored, and the server's time `now`, if there is one.
local id, expires, now
if stored then
  id, expires = string.match(stored, '^{"lockId":"([%w_-]+)","expiresAtMs":(%d+),"')
  if not id then
    local ok, lock = pcall(cjson.decode, stored)
    if not ok or type(lock) ~= 'table' or type(lock.expiresAtMs) ~= 'number' then
      return redis.error_reply('SYNCGUARD the stored value is not a lock')
    end
    id, expires = lock.lockId, lock.expiresAtMs
  end
  expires = tonumber(expires)
  local time = call('TIME')
  now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
end
