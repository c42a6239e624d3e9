-- The live lock that lockId owns.
-- KEYS  index, (lock, where it is known)
-- ARGV  lockId, toleranceMs, (index key without the client's own prefix)
-- reply {the stored JSON, the server's time in ms}, or nil;
--       -4 because the index leads to another lock than the one that was given
local bare = ARGV[3]
-- @include clock
-- @include find
-- @include read
if stored and id == ARGV[1] and expires > now - ARGV[2] then
  return { stored, now }
end
return false
