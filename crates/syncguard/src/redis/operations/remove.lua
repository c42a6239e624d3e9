-- After get.lua and read.lua: `remove` takes a lock and its index entry away and wakes those who wait, as in release.lua. The
-- fence counter stays. It gives false, and has done nothing, when the index that was given is not the lock's.
-- KEYS  lock, (in a cluster: index)
-- `bare` is the lock key without the client's own prefix, if there may be one
local function remove(key_prefix, bare)
  local index
  if type(id) == 'string' then
    local client_prefix = bare and string.sub(KEYS[1], 1, #KEYS[1] - #bare) or ''
    local prefix = string.gsub(key_prefix, ':+$', '')
    index = client_prefix .. (prefix == '' and '' or prefix .. ':') .. 'id:' .. id
    -- In a cluster, a script touches only what it was given.
    if KEYS[2] and KEYS[2] ~= index then
      return false
    end
  end
  call('DEL', KEYS[1])
  if index then
    call('DEL', index)
  end
  if not KEYS[2] or type(redis.pcall('SPUBLISH', KEYS[1], '')) == 'table' then
    redis.pcall('PUBLISH', KEYS[1], '')
  end
  return true
end
