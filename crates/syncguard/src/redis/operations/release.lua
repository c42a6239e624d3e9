-- Frees the lock that lockId owns.
-- KEYS  index, (in a cluster: lock)
-- ARGV  lockId, toleranceMs, (index key without the client's own prefix)
-- reply 1 freed, -2 it had expired, -1 no such lock, 0 the lock is another's,
--       -4 nothing was done, because the index leads to another lock than the one that was given
local call = redis.call
local lock_key = call('GET', KEYS[1])
if not lock_key then
  return -1
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
  lock_key = string.sub(KEYS[1], 1, #KEYS[1] - #ARGV[3]) .. lock_key
  stored = call('GET', lock_key)
end
if not stored then
  call('DEL', KEYS[1])
  return -1
end

local id, expires = string.match(stored, '^{"lockId":"([%w_-]+)","expiresAtMs":(%d+),"')
if not id then
  local ok, lock = pcall(cjson.decode, stored)
  if not ok or type(lock) ~= 'table' or type(lock.expiresAtMs) ~= 'number' then
    return redis.error_reply('SYNCGUARD the stored value is not a lock')
  end
  id, expires = lock.lockId, lock.expiresAtMs
end
if id ~= ARGV[1] then
  return 0
end

local time = call('TIME')
call('DEL', lock_key, KEYS[1])
-- Wakes those who wait. Without the right to publish, they find out by asking again. In a cluster, on the channels
-- of the lock's own slot where the server has them, which is from version 7 on.
if not KEYS[2] or type(redis.pcall('SPUBLISH', lock_key, '')) == 'table' then
  redis.pcall('PUBLISH', lock_key, '')
end
if tonumber(expires) > time[1] * 1000 + (time[2] - time[2] % 1000) / 1000 - ARGV[2] then
  return 1
end
return -2
