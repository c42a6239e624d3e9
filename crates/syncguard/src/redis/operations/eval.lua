-- Runs a script of the caller's, whose text follows, only if all these locks are held. What of KEYS and ARGV is not the caller's is
-- taken away first. After clock.lua.
-- KEYS  the caller's, for each lock: lock
-- ARGV  the caller's, for each lock: lockId; toleranceMs, how many locks
-- reply that of the caller's script, or {"syncguard:lost", lockId, which, code}: the first lock that is not held, counted from 0, and
--       code -2 it had expired, -1 no such lock, or another's; then nothing of the script has run
local pop = table.remove
local count, tolerance = tonumber(pop(ARGV)), pop(ARGV)
local reply
for place = count - 1, 0, -1 do
  local lock_key, lock_id = pop(KEYS), pop(ARGV)
  local stored = call('GET', lock_key)
