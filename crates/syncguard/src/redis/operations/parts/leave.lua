-- Takes a reader whose lock was freed out of its group. If it was the last one, the group is freed, too, and what follows wakes whoever waits
-- for the key. Else the group ends with the last of the others. Whoever waits is told if that is sooner than it knows; if not, this replies.
if group ~= nil then
  -- If the reader is missing in the set, others may be missing, too, so the group stays until it ends.
  if not group or call('ZREM', group.readers, id) == 0 then
    return reply
  end
  call('ZREMRANGEBYSCORE', group.readers, '-inf', string.format('%.0f', held_after))
  local last = tonumber(call('ZREVRANGE', group.readers, 0, 0, 'WITHSCORES')[2])
  if last and last >= group.ends then
    return reply
  end
  lock_key = group.key
  if last then
    group.set(last)
  else
    call('DEL', lock_key)
  end
end
