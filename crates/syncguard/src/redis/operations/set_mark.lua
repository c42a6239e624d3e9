-- Tells what is stored of the periods of a key, and changes it.
-- KEYS  mark
-- ARGV  "keep" | "clear" | "set", (due, lockId, for how many ms the mark stays or nothing)
-- reply the JSON that was stored before, or nil
-- @include clock
-- @include mark
local text, mark = read_mark(KEYS[1])
if text and not mark and ARGV[1] == 'keep' then
  return text
end
if ARGV[1] == 'clear' then
  call('DEL', KEYS[1])
elseif ARGV[1] == 'set' then
  write_mark(KEYS[1], ARGV[2], ARGV[3], ARGV[4])
end
return mark and text
