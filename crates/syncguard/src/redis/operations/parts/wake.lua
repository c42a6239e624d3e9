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
