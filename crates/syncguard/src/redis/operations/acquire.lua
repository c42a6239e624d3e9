-- Whether the lock can be taken: then `fence` becomes its number. After get.lua and read.lua. Nothing is written here.
-- KEYS  lock, index, fence
-- ARGV  lockId, ttlMs, toleranceMs, lock key, user key, tail, lifetimeMs, fenceTtlMs
--       tail: the rest of the stored object after the fence, as JSON; lifetimeMs: ttlMs + toleranceMs
--       fenceTtlMs: how long the counter stays after this; given only if it is not to stay for ever
-- reply {1, fence, expiresAtMs, lockId}, also when lockId holds it already, {0, waitMs, lock, lockId} when somebody else holds it
--       for that much longer, -3 when the fence counter is at its limit or negative
--       lock: what is stored of the one that is held; lockId: to which call the reply belongs
local wait = stored and expires + ARGV[3] - now or 0
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
