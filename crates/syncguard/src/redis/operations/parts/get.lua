-- `lock_key` and `stored`: the name of the lock, which is KEYS[1], and the value, if there is one.
local lock_key = KEYS[1]
local stored = call('GET', lock_key)
