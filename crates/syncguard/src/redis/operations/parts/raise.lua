-- Notes that the reader with the lock id ARGV[1] ends at `ends`, and makes its group end no earlier.
local added
if group then
  added = call('ZADD', group.readers, string.format('%.0f', ends), ARGV[1])
  if ends > group.ends then
    group.set(ends)
  end
  call('PEXPIRE', group.readers, string.format('%.0f', math.max(ends, group.ends) - held_after))
end
