-- The live lock on a key.
-- KEYS  lock; then for the lock of a reader: group, readers
-- ARGV  toleranceMs
-- reply {the stored JSON, the server's time in ms}, or nil
local tolerance = ARGV[1]
-- @include clock
-- @include held
-- @include get
-- @include read
-- @include group
if stored and expires > held_after and group ~= false then
  return { stored, now }
end
return false
