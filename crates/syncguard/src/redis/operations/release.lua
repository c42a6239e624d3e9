-- Frees the lock that lockId owns. After find.lua and read.lua, before wake.lua.
-- KEYS  index, (lock, where it is known)
-- ARGV  lockId, toleranceMs, (index key without the client's own prefix)
-- reply 1 freed, -2 it had expired, -1 no such lock, 0 the lock is another's,
--       -4 nothing was done, because the index leads to another lock than the one that was given
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
local reply = expires > now - ARGV[2] and 1 or -2
