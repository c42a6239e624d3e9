-- Frees the key whoever holds it.
-- KEYS  lock, (index, where it must be declared); then for the lock of a reader, where they must be declared: group, readers
-- ARGV  keyPrefix, toleranceMs, (lock key without the client's own prefix)
-- reply 1 when somebody held it, else 0; -4 nothing was done, because the index that was given is not the lock's
-- Whether the server is a node of a cluster: the last argument says so, and is taken away.
local in_cluster = ARGV[#ARGV] == 'cluster' and table.remove(ARGV)
local tolerance, bare = ARGV[2], ARGV[3]
-- `now` is the server's time in ms.
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
-- `held_after`: a lock that ends later is held. For `tolerance` ms past its end, it counts as held still.
local held_after = now - tolerance
-- `lock_key` and `stored`: the name of the lock, which is KEYS[1], and the value, if there is one.
local lock_key = KEYS[1]
local stored = call('GET', lock_key)
-- `id` and `expires` of the lock in `stored`, if there is one. In a lock that is written as grant.lua does, the digits of
-- `expires` begin at `first` and end before `after`.
local id, first, expires, after
if stored then
  -- Nothing that users choose comes before it.
  id, first, expires, after =
    string.match(stored, '^{"lockId":"([%w_-]+)","expiresAtMs":()(%d+)(),"')
  if not id then
    local ok, lock = pcall(cjson.decode, stored)
    if not ok or type(lock) ~= 'table' or type(lock.expiresAtMs) ~= 'number' then
      return redis.error_reply('SYNCGUARD the stored value is not a lock')
    end
    id, expires = lock.lockId, lock.expiresAtMs
  end
  expires = tonumber(expires)
end
-- `group`: the group of a reader, if `lock_key` is the lock of one, as its name tells; else nil. That is the lock on the reader's key, as
-- long as it has the reader's fence. False if the group is gone.
local group
if lock_key and string.sub(lock_key, -25, -23) == '\205\190r' then
  local key = string.sub(lock_key, 1, -26)
  local value = stored and call('GET', key) or ''
  -- `group`: the lock in `value` on `key`, if it is live and has the form of a group, in which its end can be set; else false.
  do
    local id, from, ends, to = string.match(value, '^{"lockId":"([%w_-]+)","expiresAtMs":()(%d+)(),"')
    ends = tonumber(ends)
    group = ends and ends > held_after and {
      key = key,
      id = id,
      fence = string.match(value, '"fence":"(%d+)"'),
      -- The sorted set of its readers: their lock ids, with the end of each.
      readers = key .. '\205\190readers',
      ends = ends,
      set = function(at)
        value = string.sub(value, 1, from - 1) .. string.format('%.0f', at) .. string.sub(value, to)
        call('SET', key, value, 'PX', string.format('%.0f', at - held_after))
      end,
    } or false
  end
  group = group and group.fence and group.fence == string.match(stored, '"fence":"(%d+)"') and group
end
-- Frees the lock in `stored`, whoever holds it: `reply` is 1 when somebody did, else 0. The fence counter stays.
-- ARGV[1] is the prefix of keys, and `bare` the lock key without the client's own prefix, if there may be one. KEYS[2] is the index,
-- where it must be declared. Replies -4, and does nothing, when that is not the lock's.
if not stored then
  return 0
end
local index
if type(id) == 'string' then
  local client_prefix = bare and string.sub(lock_key, 1, #lock_key - #bare) or ''
  local prefix = string.gsub(ARGV[1], ':+$', '')
  index = client_prefix .. (prefix == '' and '' or prefix .. ':') .. 'id:' .. id
  -- In a cluster, and on some other servers, a script touches only what it was given.
  if KEYS[2] and KEYS[2] ~= index then
    return -4
  end
end
-- In one command: a server that refuses the one must not have done the other.
if index then
  call('DEL', lock_key, index)
else
  call('DEL', lock_key)
end
local reply = expires > held_after and group ~= false and 1 or 0
-- Takes a reader whose lock was freed out of its group. If it was the last one, the group is freed, too, and what follows wakes whoever waits
-- for the key. Else the group ends with the last of the others. Whoever waits is told if that is sooner than it knows; if not, this replies.
if group ~= nil then
  -- If the reader is missing in the set, others may be missing, too, so the group stays until it ends.
  if not group or call('ZREM', group.readers, id) == 0 then
    return reply
  end
  call('ZREMRANGEBYSCORE', group.readers, '-inf', string.format('%.0f', held_after))
  local last = tonumber(call('ZREVRANGE', group.readers, 0, 0, 'WITHSCORES')[2])
  if last and last >= group.ends then
    return reply
  end
  lock_key = group.key
  if last then
    group.set(last)
  else
    call('DEL', lock_key)
  end
end
-- Wakes those who wait for the lock `lock_key`, which was removed or ends sooner, and gives `reply`.
-- Without the right to publish, they find out by asking again. In a cluster, on the channels of the lock's own hash slot
-- where the server has them, which is from version 7 on. Who waits for a slot of a key waits for any: its channel has the
-- name without the slot's number.
local channel = lock_key
if string.find(channel, '\205\190', 1, true) then
  channel = string.gsub(channel, '\205\190%d+$', '')
end
if not in_cluster or type(redis.pcall('SPUBLISH', channel, '')) == 'table' then
  redis.pcall('PUBLISH', channel, '')
end
return reply
