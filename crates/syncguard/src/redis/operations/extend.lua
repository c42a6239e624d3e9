-- Makes the lock that lockId owns end ttlMs from now. After find.lua.
-- KEYS  index, (in a cluster: lock)
-- ARGV  lockId, toleranceMs, ttlMs, lifetimeMs, (index key without the client's own prefix)
--       lifetimeMs: ttlMs + toleranceMs
-- reply {1, expiresAtMs}, -2 it had expired, -1 no such lock, 0 the lock is another's,
--       -4 nothing was done, because the index leads to another lock than the one that was given
if not stored then
  if lock_key then
    call('DEL', KEYS[1])
  end
  return -1
end

local lock
local head, id, expires, rest =
  string.match(stored, '^({"lockId":"([%w_-]+)","expiresAtMs":)(%d+)(,".*)$')
if not head then
  local ok
  ok, lock = pcall(cjson.decode, stored)
  if not ok or type(lock) ~= 'table' or type(lock.expiresAtMs) ~= 'number' then
    return redis.error_reply('SYNCGUARD the stored value is not a lock')
  end
  id, expires = lock.lockId, lock.expiresAtMs
end
if id ~= ARGV[1] then
  return 0
end

local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
if tonumber(expires) <= now - ARGV[2] then
  call('DEL', lock_key, KEYS[1])
  return -2
end

expires = now + ARGV[3]
-- Some mocks run a Lua 5.3 whose integers have 32 bits.
local digits = string.format(math.type and '%.0f' or '%d', expires)
if not head then
  -- A quote inside a JSON string has a backslash before it, so this text can only be a member's
  -- name. If it occurs exactly once, it is the member to change, and everything else stays as it is.
  local _, count = string.gsub(stored, '"expiresAtMs"%s*:', '')
  local before, number, after =
    string.match(stored, '^(.-"expiresAtMs"%s*:%s*)(%-?%d[%d.eE+-]*)(.*)$')
  if count == 1 and tonumber(number) == lock.expiresAtMs then
    head, rest = before, after
  end
end
if head then
  stored = head .. digits .. rest
else
  lock.expiresAtMs = expires
  stored = cjson.encode(lock)
end
call('SET', lock_key, stored, 'PX', ARGV[4])
call('SET', KEYS[1], lock_key, 'PX', ARGV[4])
return { 1, expires }
