-- Sets the fence counter to `fence`, so that no other lock gets this number. KEYS and ARGV are those of acquire.lua.
local counted = string.format('%.0f', fence)
if ARGV[8] then
  -- The time to live is counted from the moment that the fence names, because the clock may be behind it.
  call('SET', KEYS[3], counted, 'PX', string.format('%.0f', math.max(fence - now, 0) + ARGV[8]))
else
  call('SET', KEYS[3], counted)
end
