-- Some of the locks of this server.
-- KEYS  any name in it, which leads here in a cluster
-- ARGV  cursor, pattern of names, how many names to look at, toleranceMs
-- reply {the next cursor, the server's time in ms, for each live lock its name and the stored JSON…}
local tolerance = ARGV[4]
-- @include clock
-- @include held
local found = redis.pcall('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
if found.err then
  return found
end
local reply = { found[1], now }
for _, name in ipairs(found[2]) do
  -- Index entries and fence counters match the pattern, too, and other programs' keys may be of any type.
  local stored = redis.pcall('GET', name)
  if type(stored) == 'table' and stored.err and string.find(stored.err, 'undeclared key', 1, true) then
    return stored
  end
  if type(stored) == 'string' and string.sub(stored, 1, 1) == '{' then
    local ok, lock = pcall(cjson.decode, stored)
    if ok and type(lock) == 'table' and type(lock.lockId) == 'string'
      and type(lock.expiresAtMs) == 'number' and lock.expiresAtMs > held_after then
      local lock_key = name
      -- @include group
      if group ~= false then
        reply[#reply + 1] = name
        reply[#reply + 1] = stored
      end
    end
  end
end
return reply
