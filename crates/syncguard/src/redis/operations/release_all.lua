-- Frees locks, each for itself.
-- KEYS  for each lock: index, (lock, where all are known); then for each lock of a reader, where it is known: group, readers
-- ARGV  toleranceMs, how many locks, for each: lockId, (index key without the client's own prefix)
-- reply for each lock that of release.lua
-- @include cluster
local tolerance = ARGV[1]
-- @include clock
-- @include held

-- Frees one lock, with what release.lua takes and gives.
local function one(KEYS, ARGV)
  local bare = ARGV[3]
  -- @include find
  -- @include read
  -- @include group
  -- @include free
  -- @include leave
  -- @include wake
end

local count = tonumber(ARGV[2])
local keys, args = #KEYS > count and 2 or 1, (#ARGV - 2) / count
local replies, failure = {}, nil
for place = 0, count - 1 do
  local key, arg = keys * place + 1, args * place + 3
  local reply = one({ KEYS[key], keys > 1 and KEYS[key + 1] or nil },
    { ARGV[arg], nil, args > 1 and ARGV[arg + 1] or nil })
  -- What is stored there is no lock. The others are freed all the same.
  failure = type(reply) == 'table' and reply or failure
  replies[place + 1] = reply
end
return failure or replies
