-- The lock id of the lock on a key, live or not: what a cluster must be told before a script may touch its index entry.
-- KEYS  lock
-- reply the lock id, an empty text when the lock has none, or nil when there is no lock
-- @include clock
-- @include get
-- @include read
if not stored then
  return false
end
return type(id) == 'string' and id or ''
