-- For a key: `lock_key` and `stored` become the name of its lock and the value, if there is one. After clock.lua.
-- KEYS  lock …
local lock_key = KEYS[1]
local stored = call('GET', lock_key)
