-- Takes the lock, if nobody holds it.
-- KEYS  lock, index, fence
-- ARGV  lockId, ttlMs, toleranceMs, lock key, user key, tail, lifetimeMs, fenceTtlMs
--       tail: the rest of the stored object after the fence, as JSON; lifetimeMs: ttlMs + toleranceMs
--       fenceTtlMs: how long the counter stays after this; given only if it is not to stay for ever
-- reply {1, fence, expiresAtMs, lockId}, also when lockId holds it already, {0, waitMs, lock, lockId} when somebody else holds it
--       for that much longer, -3 when the fence counter is at its limit or negative
--       lock: what is stored of the one that is held; lockId: to which call the reply belongs
local tolerance = ARGV[3]
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
-- Whether the lock in `stored` can be taken: then `fence` becomes its number. Else replies. KEYS, ARGV and the replies are those of
-- acquire.lua. Nothing is written here.
local wait = stored and expires - held_after or 0
if wait > 0 then
  -- The caller's own lock, from a call that a client repeats because its answer was lost: as it was granted.
  -- A quote inside a JSON string has a backslash before it, so this text can only be the member.
  local granted = id == ARGV[1] and string.match(stored, '"fence":"(%d+)"')
  if granted then
    return { 1, tonumber(granted), expires, ARGV[1] }
  end
  return { 0, wait, stored, ARGV[1] }
end

local counter = call('GET', KEYS[3]) or '0'
if counter ~= '0' and not string.match(counter, '^%-?[1-9]%d*$') then
  return redis.error_reply('SYNCGUARD the stored fence counter is not a number')
end
counter = tonumber(counter)
if counter < 0 or counter >= 900000000000000 then
  return -3
end
-- The time, so that fences go on rising where the counter was lost; up to a bound, so that no clock uses them up.
local fence = math.max(counter + 1, math.min(now, 90000000000000))
-- Sets the fence counter to `fence`, so that no other lock gets this number. KEYS and ARGV are those of acquire.lua.
local counted = string.format('%.0f', fence)
if ARGV[8] then
  -- The time to live is counted from the moment that the fence names, because the clock may be behind it.
  call('SET', KEYS[3], counted, 'PX', string.format('%.0f', math.max(fence - now, 0) + ARGV[8]))
else
  call('SET', KEYS[3], counted)
end
-- Writes the lock, which is free, until `ends`, and its index entry, if it gets one. KEYS and ARGV are those of acquire.lua.
local ends = now + ARGV[2]
-- Some mocks run a Lua 5.3 whose integers have 32 bits. The server's %d works for all numbers and is faster.
local form = math.type
  and '{"lockId":"%s","expiresAtMs":%.0f,"acquiredAtMs":%.0f,"fence":"%015.0f",%s'
  or '{"lockId":"%s","expiresAtMs":%d,"acquiredAtMs":%d,"fence":"%015d",%s'
local value = string.format(form, ARGV[1], ends, now, fence, ARGV[6])
call('SET', KEYS[1], value, 'PX', ARGV[7])
if KEYS[2] then
  -- The name as the server knows it: a client may have put its own prefix before it.
  call('SET', KEYS[2], KEYS[1], 'PX', ARGV[7])
end
return { 1, fence, ends, ARGV[1] }
