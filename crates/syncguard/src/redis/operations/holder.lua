-- The lock id of the lock on a key, live or not: what a cluster must be told before a script may touch its index entry.
-- KEYS  lock
-- reply the lock id, an empty text when the lock has none, or nil when there is no lock
local stored = redis.call('GET', KEYS[1])
if not stored then
  return false
end
local ok, lock = pcall(cjson.decode, stored)
if not ok or type(lock) ~= 'table' or type(lock.expiresAtMs) ~= 'number' then
  return redis.error_reply('SYNCGUARD the stored value is not a lock')
end
return type(lock.lockId) == 'string' and lock.lockId or ''
