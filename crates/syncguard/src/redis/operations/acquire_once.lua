-- Takes the lock, if the period `due` is still to be done and nobody holds it.
-- KEYS  as acquire.lua, mark
-- ARGV  as acquire.lua, due
-- reply as acquire.lua; {2, the stored JSON, lockId} when the period, or a later one, is done
local due = table.remove(ARGV)
local tolerance = ARGV[3]
-- @include clock
-- @include held
-- @include get
-- @include read
-- @include mark
if not (stored and id == ARGV[1] and expires > held_after) then
  local text, mark = read_mark(KEYS[4])
  if text and not mark then
    return text
  end
  if mark and not is_after(due, mark.due) then
    return { 2, text, ARGV[1] }
  end
end
-- @include acquirable
-- @include spend
-- @include grant
return { 1, fence, ends, ARGV[1] }
