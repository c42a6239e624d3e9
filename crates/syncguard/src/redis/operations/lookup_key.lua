-- The live lock on a key.
-- KEYS  lock
-- ARGV  toleranceMs
-- reply {the stored JSON, the server's time in ms}, or nil
-- @include clock
-- @include get
-- @include read
if stored and expires > now - ARGV[1] then
  return { stored, now }
end
return false
