-- The beginning of the scripts for a key: `stored` becomes the value of its lock, if there is one.
-- KEYS  lock …
local call = redis.call
local stored = call('GET', KEYS[1])
