-- The live lock that lockId owns.
-- KEYS  index, (lock, where it is known; if it is a reader's, group, readers)
-- ARGV  lockId, toleranceMs, (index key without the client's own prefix)
-- reply {the stored JSON, the server's time in ms}, or nil;
--       -4 because the index leads to another lock than the one that was given
local tolerance, bare = ARGV[2], ARGV[3]
-- @include clock
-- @include held
-- @include find
-- @include read
-- @include group
if stored and id == ARGV[1] and expires > held_after and group ~= false then
  return { stored, now }
end
return false
