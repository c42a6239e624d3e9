-- The live lock on a key.
-- KEYS  lock
-- ARGV  toleranceMs
-- reply {the stored JSON, the server's time in ms}, or nil
local tolerance = ARGV[1]
-- `now` is the server's time in ms.
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
-- `held_after`: a lock that ends later is held. For `tolerance` ms past its end, it counts as held still.
local held_after = now - tolerance
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
if stored and expires > held_after then
  return { stored, now }
end
return false
