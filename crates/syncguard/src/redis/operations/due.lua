-- Whether the period `due` is still to be done. After read.lua and mark.lua, before acquire.lua, with its ARGV.
-- KEYS  as acquire.lua, mark
-- reply {2, the stored JSON, lockId} when it, or a later one, is done
-- A lock that is the caller's own, from a call that a client repeats, was granted for it.
if not (stored and id == ARGV[1] and expires + ARGV[3] > now) then
  local text, mark = read_mark(KEYS[4])
  if text and not mark then
    return text
  end
  if mark and not is_after(due, mark.due) then
    return { 2, text, ARGV[1] }
  end
end
