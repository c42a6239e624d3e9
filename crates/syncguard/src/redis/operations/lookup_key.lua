-- The live lock on a key.
-- KEYS  lock
-- ARGV  toleranceMs
-- reply {the stored JSON, the server's time in ms}, or nil
local call = redis.call
local stored = call('GET', KEYS[1])
if not stored then
  return false
end
local expires = string.match(stored, '^{"lockId":"[%w_-]+","expiresAtMs":(%d+),"')
if not expires then
  local ok, lock = pcall(cjson.decode, stored)
  expires = ok and type(lock) == 'table' and lock.expiresAtMs
  if type(expires) ~= 'number' then
    return redis.error_reply('SYNCGUARD the stored value is not a lock')
  end
end
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
if tonumber(expires) > now - ARGV[1] then
  return { stored, now }
end
return false
