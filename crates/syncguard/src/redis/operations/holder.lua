-- The lock id of the lock on a key, live or not: what a cluster must be told before a script may touch its index entry.
-- After get.lua and read.lua.
-- KEYS  lock
-- reply the lock id, an empty text when the lock has none, or nil when there is no lock
if not stored then
  return false
end
return type(id) == 'string' and id or ''
