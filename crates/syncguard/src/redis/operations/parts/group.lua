-- `group`: the group of a reader, if `lock_key` is the lock of one, as its name tells; else nil. That is the lock on the reader's key, as
-- long as it has the reader's fence. False if the group is gone.
local group
if lock_key and string.sub(lock_key, -25, -23) == '\205\190r' then
  local key = string.sub(lock_key, 1, -26)
  local value = stored and call('GET', key) or ''
  -- @include group_at
  group = group and group.fence and group.fence == string.match(stored, '"fence":"(%d+)"') and group
end
