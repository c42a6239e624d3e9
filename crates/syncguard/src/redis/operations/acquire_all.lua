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
-- @include clock
-- @include held

-- When the lock in `stored` ends, or an error reply.
local function ends(stored)
  -- @include read
  return expires
end

-- Looks at one lock, with KEYS and ARGV as acquire.lua takes them. Gives a function that takes the lock if it is free, else the reply.
local function one(KEYS, ARGV)
  -- @include get
  -- @include read
  -- @include acquirable
  return function()
    -- @include spend
    -- @include grant
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
  -- @include read
  -- @include group_at
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
      -- @include group_at
    end
    local KEYS, ARGV = own, { lock_id, ttl, nil, nil, nil, tail, lifetime }
    local fence, ends = tonumber(group.fence), now + ttl
    -- @include raise
    -- @include grant
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
