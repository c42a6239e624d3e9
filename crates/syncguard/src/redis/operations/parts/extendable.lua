-- Whether the lock in `stored` can be made to end later. Else replies. KEYS, ARGV and the replies are those of extend.lua.
if not stored then
  if lock_key then
    call('DEL', KEYS[1])
  end
  return -1
end
if id ~= ARGV[1] then
  return 0
end
if expires <= held_after then
  call('DEL', lock_key, KEYS[1])
  return -2
end
if group == false then
  call('DEL', lock_key, KEYS[1])
  return -1
end
