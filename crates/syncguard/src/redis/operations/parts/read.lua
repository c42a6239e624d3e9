-- `id` and `expires` of the lock in `stored`, if there is one. In a lock that is written as grant.lua does, the digits of
-- `expires` begin at `first` and end before `after`.
local id, first, expires, after
if stored then
  -- Nothing that users choose comes before it.
  id, first, expires, after =
    string.match(stored, '^{"lockId":"([%w_-]+)","expiresAtMs":()(%d+)(),"')
  if not id then
    local ok, lock = pcall(cjson.decode, stored)
    if not ok or type(lock) ~= 'table' or type(lock.expiresAtMs) ~= 'number' then
      return redis.error_reply('SYNCGUARD the stored value is not a lock')
    end
    id, expires = lock.lockId, lock.expiresAtMs
  end
  expires = tonumber(expires)
end
