-- The mark of a key: the stored text, and the period in it. Nothing if no period is done yet, and an error reply if it is no mark.
local function read_mark(name)
  local stored = call('GET', name)
  if not stored then
    return nil
  end
  local ok, mark = pcall(cjson.decode, stored)
  if not ok or type(mark) ~= 'table' or type(mark.due) ~= 'string' then
    return redis.error_reply('SYNCGUARD what is stored of periods that are done has another form')
  end
  return stored, mark
end

-- Whether a period is still to be done if `last` is done: both are of one kind, which the first byte tells, and it comes later
-- in the order of bytes. Lua itself compares texts by the server's locale.
local function is_after(due, last)
  if string.byte(due) ~= string.byte(last) then
    return false
  end
  for at = 2, #due do
    local one, other = string.byte(due, at), string.byte(last, at)
    if one ~= other then
      return not other or one > other
    end
  end
  return false
end

local function write_mark(name, due, lock_id, lasts)
  local text = string.format('{"due":%s,"doneAtMs":%.0f,"lockId":"%s"}', cjson.encode(due), now, lock_id)
  if lasts == '' then
    call('SET', name, text)
  else
    call('SET', name, text, 'PX', lasts)
  end
end
