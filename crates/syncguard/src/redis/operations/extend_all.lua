-- Makes locks end ttlMs from now, all or none.
-- KEYS  for each lock: index, (lock, where all are known); then for each lock of a reader, where it is known: group, readers
-- ARGV  toleranceMs, ttlMs, lifetimeMs, how many locks, for each: lockId, (index key without the client's own prefix)
-- reply {1, expiresAtMs, lockId}, or {0, which, reply of extend.lua to it, lockId}, counted from 0
--       lockId: that of the first lock
local tolerance = ARGV[1]
-- @include clock
-- @include held

-- For one lock, with what extend.lua takes: what makes it end later, if it is there, else the reply.
local function one(KEYS, ARGV)
  local bare = ARGV[5]
  -- @include find
  -- @include read
  -- @include group
  -- @include extendable
  return function()
    -- @include prolong
    -- @include raise
    -- @include follow
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
