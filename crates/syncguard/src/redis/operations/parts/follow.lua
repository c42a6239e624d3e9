-- Lets the group end with the last of its readers, where the one with the lock id ARGV[1] ends sooner than before. If it was missing in the
-- set, others may be missing, too, so the group stays until it ends.
if group and added == 0 and ends < group.ends then
  local last = tonumber(call('ZREVRANGE', group.readers, 0, 0, 'WITHSCORES')[2])
  if last < group.ends then
    group.set(last)
  end
end
