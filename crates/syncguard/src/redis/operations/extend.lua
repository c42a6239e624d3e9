-- Whether the lock that lockId owns can be made to end later. After find.lua and read.lua.
-- KEYS  index, (lock, where it is known)
-- ARGV  lockId, toleranceMs, ttlMs, lifetimeMs, (index key without the client's own prefix)
--       lifetimeMs: ttlMs + toleranceMs
-- reply {1, expiresAtMs, lockId}, -2 it had expired, -1 no such lock, 0 the lock is another's,
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
if expires <= now - ARGV[2] then
  call('DEL', lock_key, KEYS[1])
  return -2
end
