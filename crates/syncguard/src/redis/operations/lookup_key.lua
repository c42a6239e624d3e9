-- The live lock on a key.
-- KEYS  lock
-- ARGV  toleranceMs
-- reply {the stored JSON, the server's time in ms}, or nil
local tolerance = ARGV[1]
-- @include clock
-- @include held
-- @include get
-- @include read
if stored and expires > held_after then
  return { stored, now }
end
return false
