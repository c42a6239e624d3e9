-- Frees the lock in `stored`, whoever holds it: `reply` is 1 when somebody did, else 0. The fence counter stays.
-- ARGV[1] is the prefix of keys, and `bare` the lock key without the client's own prefix, if there may be one. KEYS[2] is the index,
-- where it must be declared. Replies -4, and does nothing, when that is not the lock's.
if not stored then
  return 0
end
local index
if type(id) == 'string' then
  local client_prefix = bare and string.sub(lock_key, 1, #lock_key - #bare) or ''
  local prefix = string.gsub(ARGV[1], ':+$', '')
  index = client_prefix .. (prefix == '' and '' or prefix .. ':') .. 'id:' .. id
  -- In a cluster, and on some other servers, a script touches only what it was given.
  if KEYS[2] and KEYS[2] ~= index then
    return -4
  end
end
-- In one command: a server that refuses the one must not have done the other.
if index then
  call('DEL', lock_key, index)
else
  call('DEL', lock_key)
end
local reply = expires > held_after and group ~= false and 1 or 0
