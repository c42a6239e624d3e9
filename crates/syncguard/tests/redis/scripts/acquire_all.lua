-- Takes all the locks that are asked for, or none.
-- KEYS  for each lock: lock, index, fence; of a slot, lock and fence without its number. Behind them, where they must be
--       declared, the same of all slots with their numbers.
-- ARGV  ttlMs, toleranceMs, lifetimeMs, fenceTtlMs or nothing, end,
--       for each lock: lockId, tail, how many slots or 0, the slot to begin with
--       Those that ask for slots of one key stand side by side. Behind a tail come the slot's number and `end`.
-- reply {1, how many, for each lock: slot or 0, fence, expiresAtMs, lockId}, also when the lock ids hold all of them already: so
--       many; {0, which, waitMs, lock, lockId} when that one, counted from 0, is held for that much longer (of slots: until the
--       first of them ends), with what is stored of it or nothing; -3 when a fence counter is at its limit or negative
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

-- When the lock ends that is stored, or an error reply.
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

-- For one lock, with what acquire.lua takes: what takes it, if it is free, else the reply.
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
    -- Takes the lock, which is free. KEYS, ARGV and the reply are those of acquire.lua.
    local counted = string.format('%.0f', fence)
    if ARGV[8] then
      -- Counted from the time that it shows: until then, the clock may not have come so far.
      call('SET', KEYS[3], counted, 'PX', string.format('%.0f', math.max(fence - now, 0) + ARGV[8]))
    else
      call('SET', KEYS[3], counted)
    end
    local ends = now + ARGV[2]
    -- Some mocks run a Lua 5.3 whose integers have 32 bits. The server's %d works for all numbers and is faster.
    local form = math.type
      and '{"lockId":"%s","expiresAtMs":%.0f,"acquiredAtMs":%.0f,"fence":"%015.0f",%s'
      or '{"lockId":"%s","expiresAtMs":%d,"acquiredAtMs":%d,"fence":"%015d",%s'
    local value = string.format(form, ARGV[1], ends, now, fence, ARGV[6])
    call('SET', KEYS[1], value, 'PX', ARGV[7])
    -- The name as the server knows it: a client may have put its own prefix before it.
    call('SET', KEYS[2], KEYS[1], 'PX', ARGV[7])
    return { 1, fence, ends, ARGV[1] }
  end
end

-- Up to so many slots that are free. If there are not so many, also how long it takes until another one is, and what is stored there.
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
  -- A lock that has ended may be stored still.
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

-- The slot that lockId holds, from a call that a client repeats because its answer was lost.
local function own_slot(lock, index, lock_id)
  local name = call('GET', index)
  local slot = name and string.sub(name, 1, #lock) == lock and string.match(name, '^%d+$', #lock + 1)
  local stored = slot and call('GET', name)
  return stored and string.find(stored, lock_id, 1, true) and tonumber(slot)
end

-- First all are looked at. What is to be done with those that are free is kept where their fences come in the reply.
local count = (#ARGV - 5) / 4
local reply, held = { 1, 0 }, nil
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
  local number = slot or ''
  local outcome = one({ lock .. number, index, fence .. number },
    { lock_id, ttl, nil, nil, nil, tail .. number .. tail_end, lifetime, fence_ttl })
  if type(outcome) == 'number' or type(outcome) == 'table' and outcome.err then
    return outcome
  elseif type(outcome) == 'table' and outcome[1] == 0 then
    return { 0, place, outcome[2], outcome[3], first_id }
  elseif type(outcome) == 'table' then
    reply[2] = reply[2] + 1
    held = held or { 0, place, outcome[3] - held_after, '', first_id }
  end
  reply[3 * place + 3], reply[3 * place + 4] = slot or 0, outcome
end
-- Some of the locks may be there from an earlier call of this acquisition. They stand in the way if the others are gone.
if held and reply[2] < count then
  return held
end

for place = 0, count - 1 do
  local outcome = reply[3 * place + 4]
  if type(outcome) == 'function' then
    outcome = outcome()
  end
  reply[3 * place + 4], reply[3 * place + 5] = outcome[2], outcome[3]
end
reply[3 * count + 3] = first_id
return reply
