-- Frees the key whoever holds it. The fence counter stays.
-- KEYS  lock, (in a cluster: index)
-- ARGV  keyPrefix, toleranceMs, (lock key without the client's own prefix)
-- reply 1 when somebody held it, else 0; -4 nothing was done, because the index that was given is not the lock's
local call = redis.call
local stored = call('GET', KEYS[1])
if not stored then
  return 0
end
local ok, lock = pcall(cjson.decode, stored)
if not ok or type(lock) ~= 'table' or type(lock.expiresAtMs) ~= 'number' then
  return redis.error_reply('SYNCGUARD the stored value is not a lock')
end
local index
if type(lock.lockId) == 'string' then
  local client_prefix = ARGV[3] and string.sub(KEYS[1], 1, #KEYS[1] - #ARGV[3]) or ''
  local prefix = string.gsub(ARGV[1], ':+$', '')
  index = client_prefix .. (prefix == '' and '' or prefix .. ':') .. 'id:' .. lock.lockId
  -- In a cluster, a script touches only what it was given.
  if KEYS[2] and KEYS[2] ~= index then
    return -4
  end
end
call('DEL', KEYS[1])
if index then
  call('DEL', index)
end
-- Wakes those who wait, as in release.lua.
if not KEYS[2] or type(redis.pcall('SPUBLISH', KEYS[1], '')) == 'table' then
  redis.pcall('PUBLISH', KEYS[1], '')
end
local time = call('TIME')
if lock.expiresAtMs > time[1] * 1000 + (time[2] - time[2] % 1000) / 1000 - ARGV[2] then
  return 1
end
return 0
