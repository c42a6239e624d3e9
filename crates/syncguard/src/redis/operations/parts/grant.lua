-- Writes the lock, which is free, until `ends`, and its index entry, if it gets one. KEYS and ARGV are those of acquire.lua.
local ends = now + ARGV[2]
-- Some mocks run a Lua 5.3 whose integers have 32 bits. The server's %d works for all numbers and is faster.
local form = math.type
  and '{"lockId":"%s","expiresAtMs":%.0f,"acquiredAtMs":%.0f,"fence":"%015.0f",%s'
  or '{"lockId":"%s","expiresAtMs":%d,"acquiredAtMs":%d,"fence":"%015d",%s'
local value = string.format(form, ARGV[1], ends, now, fence, ARGV[6])
call('SET', KEYS[1], value, 'PX', ARGV[7])
if KEYS[2] then
  -- The name as the server knows it: a client may have put its own prefix before it.
  call('SET', KEYS[2], KEYS[1], 'PX', ARGV[7])
end
