-- The name of the lock to which an index entry leads: what a cluster must be told before a script may touch it.
-- KEYS  index
-- ARGV  (index key without the client's own prefix)
-- reply the name without the client's own prefix, or nil
local lock_key = redis.call('GET', KEYS[1])
if not lock_key or not ARGV[1] then
  return lock_key
end
-- The entry holds the name as the server knows it, or, from a library that does not know its client's prefix, as we
-- do. The text before `id:` and the 22 characters of a lock id is where both begin.
local client_prefix = string.sub(KEYS[1], 1, #KEYS[1] - #ARGV[1])
local start = client_prefix .. string.sub(ARGV[1], 1, -26)
if string.sub(lock_key, 1, #start) == start then
  return string.sub(lock_key, #client_prefix + 1)
end
return lock_key
