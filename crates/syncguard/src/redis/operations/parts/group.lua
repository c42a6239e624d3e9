-- `group`: nil, unless `lock_key` is the lock of a reader, which its name tells. A reader is in the group whose fence it has: the lock on
-- its key, which ends with the last of its readers. False if that is not there any more.
local group
if lock_key and string.sub(lock_key, -25, -23) == '\205\190r' then
  local key = string.sub(lock_key, 1, -26)
  local value = stored and call('GET', key) or ''
  -- @include group_at
  group = group and group.fence and group.fence == string.match(stored, '"fence":"(%d+)"') and group
end
