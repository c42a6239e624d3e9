-- Makes the lock end ttlMs from now. KEYS and ARGV are those of extend.lua.
local ends = now + ARGV[3]
-- Some mocks run a Lua 5.3 whose integers have 32 bits.
local digits = string.format(math.type and '%.0f' or '%d', ends)
if not first then
  -- A quote inside a JSON string has a backslash before it, so this text can only be a member's
  -- name. If it occurs exactly once, it is the member to change, and everything else stays as it is.
  local _, count = string.gsub(stored, '"expiresAtMs"%s*:', '')
  local from, number, to = string.match(stored, '"expiresAtMs"%s*:%s*()(%-?%d[%d.eE+-]*)()')
  if count == 1 and tonumber(number) == expires then
    first, after = from, to
  end
end
if first then
  stored = string.sub(stored, 1, first - 1) .. digits .. string.sub(stored, after)
else
  local lock = cjson.decode(stored)
  lock.expiresAtMs = ends
  stored = cjson.encode(lock)
end
local written = redis.pcall('SET', lock_key, stored, 'PX', ARGV[4])
if type(written) == 'table' and written.err then
  -- While its memory is full, a server refuses SET as the first write of a script. It takes one that follows a DEL, and an
  -- extension needs no more memory than there was. Whatever else is wrong is wrong with the next SET, too.
  if string.find(written.err, 'OOM ', 1, true) then
    call('DEL', KEYS[1])
  end
  call('SET', lock_key, stored, 'PX', ARGV[4])
end
call('SET', KEYS[1], lock_key, 'PX', ARGV[4])
