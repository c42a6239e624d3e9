-- Takes the lock, if nobody holds it.
-- KEYS  lock, index, fence
-- ARGV  lockId, ttlMs, toleranceMs, lock key, user key, tail, lifetimeMs, fenceTtlMs
--       tail: the rest of the stored object after the fence, as JSON; lifetimeMs: ttlMs + toleranceMs
--       fenceTtlMs: how long the counter stays after this; given only if it is not to stay for ever
-- reply {1, fence, expiresAtMs, lockId}, also when lockId holds it already, {0, waitMs, lock, lockId} when somebody else holds it
--       for that much longer, -3 when the fence counter is at its limit or negative
--       lock: what is stored of the one that is held; lockId: to which call the reply belongs
local tolerance = ARGV[3]
-- @include clock
-- @include held
-- @include get
-- @include read
-- @include acquirable
-- @include spend
-- @include grant
return { 1, fence, ends, ARGV[1] }
