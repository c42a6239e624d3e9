-- Makes locks end ttlMs from now, all or none.
-- KEYS  for each lock: index, (lock, where all are known); then for each lock of a reader, where it is known: group, readers
-- ARGV  toleranceMs, ttlMs, lifetimeMs, how many locks, for each: lockId, (index key without the client's own prefix)
-- reply {1, expiresAtMs, lockId}, or {0, which, reply of extend.lua to it, lockId}, counted from 0
--       lockId: that of the first lock
local tolerance = ARGV[1]
-- `now` is the server's time in ms.
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
-- `held_after`: a lock that ends later is held. For `tolerance` ms past its end, it counts as held still.
local held_after = now - tolerance

-- For one lock, with what extend.lua takes: what makes it end later, if it is there, else the reply.
local function one(KEYS, ARGV)
  local bare = ARGV[5]
  -- `lock_key` and `stored`: the name and the value of the lock to which the index entry KEYS[1] leads, if there is one. KEYS[2] is the
  -- lock, where it is known. ARGV[1] is the lock id, and `bare` the index key without the client's own prefix, if there may be one.
  -- Replies -4 when the index leads to another lock than the one that was given.
  local lock_key = call('GET', KEYS[1])
  local stored
  if lock_key then
    if KEYS[2] then
      -- In a cluster, and on some other servers, a script touches only what it was given.
      if lock_key ~= KEYS[2]
          and string.sub(KEYS[1], 1, #KEYS[1] - #(bare or KEYS[1])) .. lock_key ~= KEYS[2] then
        return -4
      end
      lock_key = KEYS[2]
    end
    stored = call('GET', lock_key)
    -- A library that does not know its client's prefix writes index entries whose lock name lacks it.
    if not KEYS[2] and bare and #bare < #KEYS[1]
        and not (stored and string.find(stored, ARGV[1], 1, true)) then
      lock_key = string.sub(KEYS[1], 1, #KEYS[1] - #bare) .. lock_key
      stored = call('GET', lock_key)
    end
  end
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
  -- Whether the lock in `stored` can be made to end later. Else replies. KEYS, ARGV and the replies are those of extend.lua.
  if not stored then
    if lock_key then
      call('DEL', KEYS[1])
    end
    return -1
  end
  if id ~= ARGV[1] then
    return 0
  end
  if expires <= held_after then
    call('DEL', lock_key, KEYS[1])
    return -2
  end
  if group == false then
    call('DEL', lock_key, KEYS[1])
    return -1
  end
  return function()
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
    -- Notes that the reader with the lock id ARGV[1] ends at `ends`, and makes its group end no earlier.
    local added
    if group then
      added = call('ZADD', group.readers, string.format('%.0f', ends), ARGV[1])
      if ends > group.ends then
        group.set(ends)
      end
      call('PEXPIRE', group.readers, string.format('%.0f', math.max(ends, group.ends) - held_after))
    end
    -- Lets the group end with the last of its readers, where the one with the lock id ARGV[1] ends sooner than before. If it was missing in the
    -- set, others may be missing, too, so the group stays until it ends.
    if group and added == 0 and ends < group.ends then
      local last = tonumber(call('ZREVRANGE', group.readers, 0, 0, 'WITHSCORES')[2])
      if last < group.ends then
        group.set(last)
      end
    end
    return { 1, ends, ARGV[1] }
  end
end

local count = tonumber(ARGV[4])
local keys, args = #KEYS > count and 2 or 1, (#ARGV - 4) / count
local found, first_id = {}, ARGV[5]
for place = 0, count - 1 do
  local key, arg = keys * place + 1, args * place + 5
  local reply = one({ KEYS[key], keys > 1 and KEYS[key + 1] or nil },
    { ARGV[arg], nil, ARGV[2], ARGV[3], args > 1 and ARGV[arg + 1] or nil })
  if type(reply) == 'number' then
    return { 0, place, reply, first_id }
  elseif type(reply) == 'table' then
    return reply
  end
  found[place + 1] = reply
end
local reply
for _, prolong in ipairs(found) do
  reply = prolong()
end
reply[3] = first_id
return reply
