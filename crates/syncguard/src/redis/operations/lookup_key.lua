-- The live lock on a key. After get.lua and read.lua.
-- KEYS  lock
-- ARGV  toleranceMs
-- reply {the stored JSON, the server's time in ms}, or nil
if stored and expires > now - ARGV[1] then
  return { stored, now }
end
return false
