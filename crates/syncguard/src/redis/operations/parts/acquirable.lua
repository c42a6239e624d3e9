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
