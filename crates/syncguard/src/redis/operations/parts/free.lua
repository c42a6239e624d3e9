-- Frees the lock in `stored`, if the lock id in ARGV[1] owns it: `reply` says whether it was live still. Else replies. KEYS and the
-- replies are those of release.lua.
if not stored then
  if lock_key then
    call('DEL', KEYS[1])
  end
  return -1
end
if id ~= ARGV[1] then
  return 0
end
call('DEL', lock_key, KEYS[1])
local reply = expires <= held_after and -2 or group == false and -1 or 1
