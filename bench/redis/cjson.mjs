// The scripts as one writes them first, with cjson: what the core's are measured against.

const NOW = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
`;

const OWN = `${NOW}
local lockKey = redis.call('GET', KEYS[1])
if not lockKey then return -1 end
local stored = redis.call('GET', lockKey)
if not stored then return -1 end
local lock = cjson.decode(stored)
if lock.lockId ~= ARGV[1] then return 0 end
`;

/** Keys and arguments are the core's. */
export const cjsonScripts = {
  acquire: `${NOW}
local stored = redis.call('GET', KEYS[1])
if stored and cjson.decode(stored).expiresAtMs > now - tonumber(ARGV[3]) then return 0 end
local fence = string.format('%015d', redis.call('INCR', KEYS[3]))
local expires = now + tonumber(ARGV[2])
local lock = { lockId = ARGV[1], expiresAtMs = expires, acquiredAtMs = now, key = ARGV[5], fence = fence }
redis.call('SET', KEYS[1], cjson.encode(lock), 'PX', ARGV[7])
redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[7])
return { 1, fence, expires }`,

  release: `${OWN}
redis.call('DEL', lockKey, KEYS[1])
if lock.expiresAtMs <= now - tonumber(ARGV[2]) then return -2 end
return 1`,

  extend: `${OWN}
if lock.expiresAtMs <= now - tonumber(ARGV[2]) then return -2 end
lock.expiresAtMs = now + tonumber(ARGV[3])
redis.call('SET', lockKey, cjson.encode(lock), 'PX', ARGV[4])
redis.call('SET', KEYS[1], lockKey, 'PX', ARGV[4])
return { 1, lock.expiresAtMs }`,

  is_locked: `${NOW}
local stored = redis.call('GET', KEYS[1])
if stored and cjson.decode(stored).expiresAtMs > now - tonumber(ARGV[2]) then return 1 end
return 0`,
};
