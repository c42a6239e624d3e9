-- Frees the lock that lockId owns, and stores that something is done.
-- KEYS  index, mark, (lock)
-- ARGV  lockId, toleranceMs, due, for how many ms the mark stays or nothing, (index key without the client's own prefix)
-- reply {that of release.lua, lockId}; {1, lockId} also when lockId has stored it before, in a call whose answer was lost
-- @include cluster
local tolerance = ARGV[2]
-- @include clock
-- @include held
-- @include mark

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

-- What is stored is looked at before anything is done.
local text, mark = read_mark(KEYS[2])
if text and not mark then
  return text
end
local reply = one({ KEYS[1], KEYS[3] }, { ARGV[1], nil, ARGV[5] })
if type(reply) == 'table' then
  return reply
end
if reply == 1 then
  if not mark or is_after(ARGV[3], mark.due) then
    write_mark(KEYS[2], ARGV[3], ARGV[1], ARGV[4])
  end
elseif mark and mark.due == ARGV[3] and mark.lockId == ARGV[1] then
  reply = 1
end
return { reply, ARGV[1] }
