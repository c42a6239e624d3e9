-- Frees the key whoever holds it. After get.lua, read.lua and remove.lua.
-- KEYS  lock, (in a cluster: index)
-- ARGV  keyPrefix, toleranceMs, (lock key without the client's own prefix)
-- reply 1 when somebody held it, else 0; -4 nothing was done, because the index that was given is not the lock's
if not stored then
  return 0
end
if not remove(ARGV[1], ARGV[3]) then
  return -4
end
return expires > now - ARGV[2] and 1 or 0
