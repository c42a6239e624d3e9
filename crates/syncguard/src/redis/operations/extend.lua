-- Makes the lock that lockId owns end ttlMs from now.
-- KEYS  index, (lock, where it is known; if it is a reader's, group, readers)
-- ARGV  lockId, toleranceMs, ttlMs, lifetimeMs, (index key without the client's own prefix)
--       lifetimeMs: ttlMs + toleranceMs
-- reply {1, expiresAtMs, lockId}, -2 it had expired, -1 no such lock, 0 the lock is another's,
--       -4 nothing was done, because the index leads to another lock than the one that was given
local tolerance, bare = ARGV[2], ARGV[5]
-- @include clock
-- @include held
-- @include find
-- @include read
-- @include group
-- @include extendable
-- @include prolong
-- @include raise
-- @include follow
return { 1, ends, ARGV[1] }
