-- Before a script of the caller's, whose text follows: ends it unless all these locks are held. What of KEYS and ARGV is not the
-- caller's is taken away first. The block keeps its names from the caller's.
-- KEYS  the caller's, for each lock: (of a reader, the lock on its key), lock
-- ARGV  the caller's, for each lock: lockId; toleranceMs, how many locks
-- reply that of the caller's script, or {"syncguard:lost", lockId, which, code}: the first lock that is not held, counted from 0, and
--       code -2 it had expired, -1 no such lock, or another's; then nothing of the script has run
do
  local lost = (function()
    local pop = table.remove
    local count, tolerance = tonumber(pop(ARGV)), pop(ARGV)
    -- `now` is the server's time in ms.
    local call = redis.call
    local time = call('TIME')
    local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
    -- `held_after`: a lock that ends later is held. For `tolerance` ms past its end, it counts as held still.
    local held_after = now - tolerance
    local reply
    for place = count - 1, 0, -1 do
      local lock_key, lock_id = pop(KEYS), pop(ARGV)
      local stored = call('GET', lock_key)
      -- `id` and `expires` of the lock in `stored`, if there is one. In a lock that is written as grant.lua does, the digits of
      -- `expires` begin at `first` and end before `after`.
      local id, first, expires, after
      if stored then
        -- Nothing that users choose comes before it.
        id, first, expires, after =
          string.match(stored, '^{"lockId":"([%w_-]+)","expiresAtMs":()(%d+)(),"')
        if not id then
          local ok, lock = pcall(cjson.decode, stored)
          if not ok or type(lock) ~= 'table' or type(lock.expiresAtMs) ~= 'number' then
            return redis.error_reply('SYNCGUARD the stored value is not a lock')
          end
          id, expires = lock.lockId, lock.expiresAtMs
        end
        expires = tonumber(expires)
      end
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
      if group ~= nil then
        pop(KEYS)
      end
      if not stored or id ~= lock_id or group == false then
        reply = { 'syncguard:lost', lock_id, place, -1 }
      elseif expires <= held_after then
        reply = { 'syncguard:lost', lock_id, place, -2 }
      end
    end
    return reply
  end)()
  if lost then
    return lost
  end
end
