-- Takes all the locks that are asked for, or none.
-- KEYS  for each lock: lock, index, fence (for slots, lock and fence lack the number at their end)
--       then for each shared lock: the reader's lock, the sorted set of readers, the gate
--       then, where they must be declared: lock and fence of each slot, with its number
-- ARGV  ttlMs, toleranceMs, lifetimeMs, fenceTtlMs or nothing, end,
--       for each lock: lockId, tail, and one of: 0, 0 (exclusive); how many slots, the slot to begin with; -1, the group's lock id (shared)
--       Locks on slots of one key stand side by side. To a tail are added the slot's number, or the reader's lock id, and then `end`.
-- reply {1, held, for each lock: slot or 0, fence, expiresAtMs, then lockId} when all are granted; held: how many the lock ids held before
--       {0, which, waitMs, lock, lockId} when one is held; which: its number, from 0; waitMs: for how much longer (for slots, until
--       the first of them ends); lock: what is stored of it, or nothing
--       -3 when a fence counter is at its limit or negative
--       lockId: that of the first lock
local ttl, tolerance, lifetime, tail_end = ARGV[1], ARGV[2], ARGV[3], ARGV[5]
local fence_ttl = ARGV[4] ~= '' and ARGV[4] or nil
local first_id = ARGV[6]
-- `now` is the server's time in ms.
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
-- `held_after`: a lock that ends later is held. For `tolerance` ms past its end, it counts as held still.
local held_after = now - tolerance

-- When the lock in `stored` ends, or an error reply.
local function ends(stored)
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
  return expires
end

-- Looks at one lock, with KEYS and ARGV as acquire.lua takes them. Gives a function that takes the lock if it is free, else the reply.
local function one(KEYS, ARGV)
  -- `lock_key` and `stored`: the name of the lock, which is KEYS[1], and the value, if there is one.
  local lock_key = KEYS[1]
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
  -- Whether the lock in `stored` can be taken: then `fence` becomes its number. Else replies. KEYS, ARGV and the replies are those of
  -- acquire.lua. Nothing is written here.
  local wait = stored and expires - held_after or 0
  if wait > 0 then
    -- The caller's own lock, from a call that a client repeats because its answer was lost: as it was granted.
    -- A quote inside a JSON string has a backslash before it, so this text can only be the member.
    local granted = id == ARGV[1] and string.match(stored, '"fence":"(%d+)"')
    if granted then
      return { 1, tonumber(granted), expires, ARGV[1] }
    end
    return { 0, wait, stored, ARGV[1] }
  end

  local counter = call('GET', KEYS[3]) or '0'
  if counter ~= '0' and not string.match(counter, '^%-?[1-9]%d*$') then
    return redis.error_reply('SYNCGUARD the stored fence counter is not a number')
  end
  counter = tonumber(counter)
  if counter < 0 or counter >= 900000000000000 then
    return -3
  end
  -- The time, so that fences go on rising where the counter was lost; up to a bound, so that no clock uses them up.
  local fence = math.max(counter + 1, math.min(now, 90000000000000))
  return function()
    -- Sets the fence counter to `fence`, so that no other lock gets this number. KEYS and ARGV are those of acquire.lua.
    local counted = string.format('%.0f', fence)
    if ARGV[8] then
      -- The time to live is counted from the moment that the fence names, because the clock may be behind it.
      call('SET', KEYS[3], counted, 'PX', string.format('%.0f', math.max(fence - now, 0) + ARGV[8]))
    else
      call('SET', KEYS[3], counted)
    end
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
    return { 1, fence, ends, ARGV[1] }
  end
end

-- Whether this is a reply by which nothing can be taken.
local function is_refusal(outcome)
  return type(outcome) == 'number' or type(outcome) == 'table' and outcome[1] ~= 1
end

-- The same for a shared lock: the reader joins the group on the key, or makes it. KEYS has no index entry for the group, because anybody can
-- compute its lock id. `own` has the names of the reader's lock and its index entry, `gate` that of the gate.
local function shared(KEYS, ARGV, own, gate, lock_id, tail)
  local key, group, outcome = KEYS[1], nil, nil
  local value, stored = call('GET', key) or '', call('GET', own[1])
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
  group = group and group.fence and group.id == ARGV[1] and group
  if not group then
    outcome = one(KEYS, ARGV)
    if is_refusal(outcome) then
      return outcome
    elseif type(outcome) == 'table' then
      -- This is a group in another form than that of grant.lua: nobody can join it.
      return { 0, outcome[3] - held_after, value, lock_id }
    end
  elseif id == lock_id and expires > held_after and group.fence == string.match(stored, '"fence":"(%d+)"') then
    return { 1, tonumber(group.fence), expires, lock_id }
  end
  -- Whoever waits until all readers have left has the gate.
  local waiter = call('GET', gate)
  local waits = waiter and ends(waiter)
  if type(waits) == 'table' then
    return waits
  elseif waits and waits > held_after then
    return { 0, waits - held_after, waiter, lock_id }
  end
  return function()
    if not group then
      local readers = key .. '\205\190readers'
      -- This comes first, so that nothing is written if the server refuses the command.
      call('ZADD', readers, 0, lock_id)
      outcome()
      -- Readers of an earlier group may be left, if somebody freed that by force.
      call('DEL', readers)
      value = call('GET', key)
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
    end
    local KEYS, ARGV = own, { lock_id, ttl, nil, nil, nil, tail, lifetime }
    local fence, ends = tonumber(group.fence), now + ttl
    -- Notes that the reader with the lock id ARGV[1] ends at `ends`, and makes its group end no earlier.
    local added
    if group then
      added = call('ZADD', group.readers, string.format('%.0f', ends), ARGV[1])
      if ends > group.ends then
        group.set(ends)
      end
      call('PEXPIRE', group.readers, string.format('%.0f', math.max(ends, group.ends) - held_after))
    end
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
    return { 1, fence, ends, lock_id }
  end
end

-- Up to `wanted` free slots. If there are fewer, also how long it takes until the next one ends, and what is stored there.
local function free_slots(lock, slots, start, wanted)
  local free, used, values, soonest, first = {}, {}, {}, nil, nil
  for step = 1, slots do
    local slot = (start + step - 2) % slots + 1
    local stored = call('GET', lock .. slot)
    if not stored then
      free[#free + 1] = slot
      if #free == wanted then
        return free
      end
    end
    used[step], values[step] = slot, stored
  end
  -- Locks that have ended may still be stored.
  for step, stored in ipairs(values) do
    local expires = stored and ends(stored)
    if type(expires) == 'table' then
      return expires
    end
    local wait = expires and expires - held_after
    if wait and wait <= 0 then
      free[#free + 1] = used[step]
      if #free == wanted then
        return free
      end
    elseif wait and (not soonest or wait < soonest) then
      soonest, first = wait, stored
    end
  end
  return free, soonest, first
end

-- The slot that `lock_id` holds already, from a call that a client repeats because its answer was lost.
local function own_slot(lock, index, lock_id)
  local name = call('GET', index)
  local slot = name and string.sub(name, 1, #lock) == lock and string.match(name, '^%d+$', #lock + 1)
  local stored = slot and call('GET', name)
  return stored and string.find(stored, lock_id, 1, true) and tonumber(slot)
end

-- First all locks are looked at. The function that takes a free one is kept in the reply, where its fence comes later.
local count = (#ARGV - 5) / 4
local reply, held = { 1, 0 }, nil
local beside = 3 * count
local key, free, soonest, first
for place = 0, count - 1 do
  local lock, index, fence = KEYS[3 * place + 1], KEYS[3 * place + 2], KEYS[3 * place + 3]
  local lock_id, tail = ARGV[4 * place + 6], ARGV[4 * place + 7]
  local slots, start = tonumber(ARGV[4 * place + 8]), tonumber(ARGV[4 * place + 9])
  local slot
  if slots > 0 then
    slot = own_slot(lock, index, lock_id)
    if not slot then
      if lock ~= key then
        local wanted = 1
        while place + wanted < count and KEYS[3 * (place + wanted) + 1] == lock do
          wanted = wanted + 1
        end
        key = lock
        free, soonest, first = free_slots(lock, slots, start, wanted)
        if free.err then
          return free
        end
      end
      slot = table.remove(free, 1)
      if not slot then
        return { 0, place, soonest, first, first_id }
      end
    end
  end
  local outcome
  if slots < 0 then
    outcome = shared({ lock, nil, fence },
      { ARGV[4 * place + 9], ttl, nil, nil, nil, tail .. '"}', lifetime, fence_ttl },
      { KEYS[beside + 1], index }, KEYS[beside + 3], lock_id, tail .. '\205\190r' .. lock_id .. tail_end)
    beside = beside + 3
  else
    local number = slot or ''
    outcome = one({ lock .. number, index, fence .. number },
      { lock_id, ttl, nil, nil, nil, tail .. number .. tail_end, lifetime, fence_ttl })
  end
  if is_refusal(outcome) then
    local is_held = type(outcome) == 'table' and outcome[1] == 0
    return is_held and { 0, place, outcome[2], outcome[3], first_id } or outcome
  elseif type(outcome) == 'table' then
    reply[2] = reply[2] + 1
    held = held or { 0, place, outcome[3] - held_after, '', first_id }
  end
  reply[3 * place + 3], reply[3 * place + 4] = slot or 0, outcome
end
-- Some of the locks may be held from an earlier call of this acquisition. They stand in the way if the others are gone.
if held and reply[2] < count then
  return held
end

-- Shared locks are taken first: the server may refuse their commands, and then nothing is written.
for _, comes_first in ipairs({ true, false }) do
  for place = 0, count - 1 do
    local outcome, is_shared = reply[3 * place + 4], ARGV[4 * place + 8] == '-1'
    if is_shared == comes_first then
      if type(outcome) == 'function' then
        outcome = outcome()
      end
      reply[3 * place + 4], reply[3 * place + 5] = outcome[2], outcome[3]
    end
  end
end
reply[3 * count + 3] = first_id
return reply
