-- Some of the locks of this server.
-- KEYS  any name in it, which leads here in a cluster
-- ARGV  cursor, pattern of names, how many names to look at, toleranceMs
-- reply {the next cursor, the server's time in ms, for each live lock its name and the stored JSON…}
local tolerance = ARGV[4]
-- `now` is the server's time in ms.
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
-- `held_after`: a lock that ends later is held. For `tolerance` ms past its end, it counts as held still.
local held_after = now - tolerance
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
      -- `group`: the group of a reader, if `lock_key` is the lock of one, as its name tells; else nil. That is the lock on the reader's key, as
      -- long as it has the reader's fence. False if the group is gone.
      local group
      if lock_key and string.sub(lock_key, -25, -23) == '\205\190r' then
        local key = string.sub(lock_key, 1, -26)
        local value = stored and call('GET', key) or ''
        -- `group`: the lock in `value` on `key`, if it is live and has the form of a group, in which its end can be set; else false.
        do
          local id, from, ends, to = string.match(value, '^{"lockId":"([%w_-]+)","expiresAtMs":()(%d+)(),"')
          ends = tonumber(ends)
          group = ends and ends > held_after and {
            key = key,
            id = id,
            fence = string.match(value, '"fence":"(%d+)"'),
            -- The sorted set of its readers: their lock ids, with the end of each.
            readers = key .. '\205\190readers',
            ends = ends,
            set = function(at)
              value = string.sub(value, 1, from - 1) .. string.format('%.0f', at) .. string.sub(value, to)
              call('SET', key, value, 'PX', string.format('%.0f', at - held_after))
            end,
          } or false
        end
        group = group and group.fence and group.fence == string.match(stored, '"fence":"(%d+)"') and group
      end
      if group ~= false then
        reply[#reply + 1] = name
        reply[#reply + 1] = stored
      end
    end
  end
end
return reply
