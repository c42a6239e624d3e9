-- Frees the key whoever holds it. The fence counter stays. After get.lua and read.lua.
-- KEYS  lock, (in a cluster: index)
-- ARGV  keyPrefix, toleranceMs, (lock key without the client's own prefix)
-- reply 1 when somebody held it, else 0; -4 nothing was done, because the index that was given is not the lock's
if not stored then
  return 0
end
local index
if type(id) == 'string' then
  local client_prefix = ARGV[3] and string.sub(KEYS[1], 1, #KEYS[1] - #ARGV[3]) or ''
  local prefix = string.gsub(ARGV[1], ':+$', '')
  index = client_prefix .. (prefix == '' and '' or prefix .. ':') .. 'id:' .. id
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
if expires > now - ARGV[2] then
  return 1
end
return 0
