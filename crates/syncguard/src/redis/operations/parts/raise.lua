-- Notes when a reader ends, whose lock id is ARGV[1], and lets its group end no earlier.
if group then
  call('ZADD', group.readers, string.format('%.0f', ends), ARGV[1])
  if ends > group.ends then
    group.set(ends)
  end
  call('PEXPIRE', group.readers, string.format('%.0f', math.max(ends, group.ends) - held_after))
end
