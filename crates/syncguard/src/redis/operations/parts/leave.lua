-- After a reader's lock, its place in the group: if it was the last one, the group goes, and who waits for the key is woken. Else the
-- group ends with the last of the others. Nobody waits for the lock of a reader.
if group ~= nil then
  -- Where the reader is missing, others may be.
  if not group or call('ZREM', group.readers, id) == 0 then
    return reply
  end
  call('ZREMRANGEBYSCORE', group.readers, '-inf', string.format('%.0f', held_after))
  local last = tonumber(call('ZREVRANGE', group.readers, 0, 0, 'WITHSCORES')[2])
  if last then
    if last < group.ends then
      group.set(last)
    end
    return reply
  end
  lock_key = group.key
  call('DEL', lock_key)
end
