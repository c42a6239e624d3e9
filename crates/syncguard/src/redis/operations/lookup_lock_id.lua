-- The live lock that lockId owns.
-- KEYS  index, (in a cluster: lock)
-- ARGV  lockId, toleranceMs, (index key without the client's own prefix)
-- reply {the stored JSON, the server's time in ms}, or nil;
--       -4 because the index leads to another lock than the one that was given
local call = redis.call
local lock_key = call('GET', KEYS[1])
if not lock_key then
  return false
end
if KEYS[2] then
  -- In a cluster, a script touches only what it was given.
  local client_prefix = string.sub(KEYS[1], 1, #KEYS[1] - #(ARGV[3] or KEYS[1]))
  if lock_key ~= KEYS[2] and client_prefix .. lock_key ~= KEYS[2] then
    return -4
  end
  lock_key = KEYS[2]
end
local stored = call('GET', lock_key)
-- A library that does not know its client's prefix writes index entries whose lock name lacks it.
if not KEYS[2] and ARGV[3] and #ARGV[3] < #KEYS[1]
    and not (stored and string.find(stored, ARGV[1], 1, true)) then
  stored = call('GET', string.sub(KEYS[1], 1, #KEYS[1] - #ARGV[3]) .. lock_key)
end
if not stored then
  return false
end

local id, expires = string.match(stored, '^{"lockId":"([%w_-]+)","expiresAtMs":(%d+),"')
if not id then
  local ok, lock = pcall(cjson.decode, stored)
  if not ok or type(lock) ~= 'table' or type(lock.expiresAtMs) ~= 'number' then
    return redis.error_reply('SYNCGUARD the stored value is not a lock')
  end
  id, expires = lock.lockId, lock.expiresAtMs
end
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
if id == ARGV[1] and tonumber(expires) > now - ARGV[2] then
  return { stored, now }
end
return false
