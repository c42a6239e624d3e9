-- Whether somebody holds the key.
-- KEYS  lock, (to remove it, where they must be declared: index; then for the lock of a reader: group, readers)
-- ARGV  keyPrefix, toleranceMs, "true" | "false": remove what expired long ago,
--       (lock key without the client's own prefix)
-- reply 1 or 0; -4 nothing was done, because the index that was given is not the lock's
-- @include cluster
local tolerance, bare = ARGV[2], ARGV[4]
-- @include clock
-- @include held
-- @include get
-- @include read
-- @include group
if not stored then
  return 0
end
if expires > held_after and group ~= false then
  return 1
end
-- Twice the tolerance, so that an adjusted clock does not make this collide with an extension.
if ARGV[3] ~= 'true' or now - expires <= 2000 then
  return 0
end
-- @include free_key
-- @include leave
-- @include wake
