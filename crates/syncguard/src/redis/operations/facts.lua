-- What the server tells of itself: INFO needs a right of its own.
-- KEYS  any name in it, which leads here in a cluster
-- reply {the server's time in ms, INFO's text or the reason why there is none…}
local time = redis.call('TIME')
local reply = { time[1] * 1000 + (time[2] - time[2] % 1000) / 1000 }
for at, section in ipairs({ 'server', 'memory', 'persistence', 'replication', 'stats' }) do
  local text = redis.pcall('INFO', section)
  reply[at + 1] = type(text) == 'table' and (text.err and '' or text.verbatim_string or '') or text
end
return reply
