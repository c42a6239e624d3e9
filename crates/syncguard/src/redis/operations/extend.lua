-- Makes the lock that lockId owns end ttlMs from now.
-- KEYS  index, (in a cluster: lock)
-- ARGV  lockId, toleranceMs, ttlMs, lifetimeMs, (index key without the client's own prefix)
--       lifetimeMs: ttlMs + toleranceMs
-- reply {1, expiresAtMs}, -2 it had expired, -1 no such lock, 0 the lock is another's,
--       -4 nothing was done, because the index leads to another lock than the one that was given
local call = redis.call
local lock_key = call('GET', KEYS[1])
if not lock_key then
  return -1
end
if KEYS[2] then
  -- In a cluster, a script touches only what it was given.
  local client_prefix = string.sub(KEYS[1], 1, #KEYS[1] - #(ARGV[5] or KEYS[1]))
  if lock_key ~= KEYS[2] and client_prefix .. lock_key ~= KEYS[2] then
    return -4
  end
  lock_key = KEYS[2]
end
local stored = call('GET', lock_key)
-- A library that does not know its client's prefix writes index entries whose lock name lacks it.
if not KEYS[2] and ARGV[5] and #ARGV[5] < #KEYS[1]
    and not (stored and string.find(stored, ARGV[1], 1, true)) then
  lock_key = string.sub(KEYS[1], 1, #KEYS[1] - #ARGV[5]) .. lock_key
  stored = call('GET', lock_key)
end
if not stored then
  call('DEL', KEYS[1])
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
