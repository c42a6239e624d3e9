-- Sets the counter to `fence`, which no other lock gets. KEYS and ARGV are those of acquire.lua.
local counted = string.format('%.0f', fence)
if ARGV[8] then
  -- Counted from the time that it shows: until then, the clock may not have come so far.
  call('SET', KEYS[3], counted, 'PX', string.format('%.0f', math.max(fence - now, 0) + ARGV[8]))
else
  call('SET', KEYS[3], counted)
end
