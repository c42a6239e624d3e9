-- The lock id of the lock on a key, live or not: what a cluster must be told before a script may touch its index entry.
-- KEYS  lock
-- reply the lock id, an empty text when the lock has none, or nil when there is no lock
-- `now` is the server's time in ms.
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
-- `lock_key` and `stored`: the name of the lock, which is KEYS[1], and the value, if there is one.
local lock_key = KEYS[1]
local stored = call('GET', lock_key)
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
if not stored then
  return false
end
return type(id) == 'string' and id or ''
