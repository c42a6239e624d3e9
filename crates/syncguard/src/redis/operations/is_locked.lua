-- Whether somebody holds the key. After get.lua and read.lua.
-- KEYS  lock, (in a cluster, to remove it: index)
-- ARGV  keyPrefix, toleranceMs, "true" | "false": remove what expired long ago,
--       (lock key without the client's own prefix)
-- reply 1 or 0; -4 nothing was done, because the index that was given is not the lock's
if not stored then
  return 0
end
if expires > now - ARGV[2] then
  return 1
end
-- Twice the tolerance, so that an adjusted clock does not make this collide with an extension. The fence counter stays.
if ARGV[3] == 'true' and now - expires > 2000 then
  local index
  if type(id) == 'string' then
    local client_prefix = ARGV[4] and string.sub(KEYS[1], 1, #KEYS[1] - #ARGV[4]) or ''
    local prefix = string.gsub(ARGV[1], ':+$', '')
    index = client_prefix .. (prefix == '' and '' or prefix .. ':') .. 'id:' .. id
    -- In a cluster, a script touches only what it was given.
    if KEYS[2] and KEYS[2] ~= index then
      return -4
    end
  end
  call('DEL', KEYS[1])
  -- Wakes those who wait, as in release.lua.
  if not KEYS[2] or type(redis.pcall('SPUBLISH', KEYS[1], '')) == 'table' then
    redis.pcall('PUBLISH', KEYS[1], '')
  end
  if index then
    call('DEL', index)
  end
end
return 0
