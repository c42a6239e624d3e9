-- What the server tells of itself: INFO needs a right of its own. And what scripts may do here, by what comes of trying it: nothing
-- is changed by that.
-- KEYS  any name in it, which leads here in a cluster, and one under which nothing is stored
-- reply {the server's time in ms, or 0, INFO's text or nothing…, lines in the form of INFO's: undeclared_keys:refused if
--       scripts may touch only what is declared, missing_rights: and the commands that the user may not call}
local function refusal(...)
  local reply = redis.pcall(...)
  return type(reply) == 'table' and reply.err or nil
end
local time = redis.pcall('TIME')
local reply = { time[1] and time[1] * 1000 + (time[2] - time[2] % 1000) / 1000 or 0 }
for at, section in ipairs({ 'server', 'memory', 'persistence', 'replication', 'stats' }) do
  local text = redis.pcall('INFO', section)
  reply[at + 1] = type(text) == 'table' and (text.err and '' or text.verbatim_string or '') or text
end
local undeclared = refusal('GET', KEYS[1] .. 'undeclared')
if undeclared and string.find(undeclared, 'undeclared key', 1, true) then
  reply[#reply + 1] = 'undeclared_keys:refused'
end
local tried = { { 'TIME' }, { 'GET', KEYS[2] }, { 'SET', KEYS[2], '', 'XX' }, { 'DEL', KEYS[2] },
  { 'SCAN', '0', 'COUNT', '1' }, { 'PUBLISH', KEYS[1], '' }, { 'ZADD', KEYS[2], 'XX', '0', '' }, { 'ZREM', KEYS[2], '' },
  { 'ZREVRANGE', KEYS[2], '0', '0' }, { 'ZREMRANGEBYSCORE', KEYS[2], '0', '0' }, { 'PEXPIRE', KEYS[2], '1' } }
local missing = {}
for _, command in ipairs(tried) do
  local err = refusal(unpack(command)) or ''
  if string.find(err, 'permission', 1, true) or string.find(err, "can't run this command", 1, true)
      or string.find(err, "can't access", 1, true) or string.find(err, 'ACL failure', 1, true) then
    missing[#missing + 1] = string.lower(command[1])
  end
end
if #missing > 0 then
  reply[#reply + 1] = 'missing_rights:' .. table.concat(missing, ' ')
end
return reply
