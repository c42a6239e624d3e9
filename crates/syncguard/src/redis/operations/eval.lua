-- Before a script of the caller's, whose text follows: ends it unless all these locks are held. What of KEYS and ARGV is not the
-- caller's is taken away first. The block keeps its names from the caller's.
-- KEYS  the caller's, for each lock: (of a reader, the lock on its key), lock
-- ARGV  the caller's, for each lock: lockId; toleranceMs, how many locks
-- reply that of the caller's script, or {"syncguard:lost", lockId, which, code}: the first lock that is not held, counted from 0, and
--       code -2 it had expired, -1 no such lock, or another's; then nothing of the script has run
do
  local lost = (function()
    local pop = table.remove
    local count, tolerance = tonumber(pop(ARGV)), pop(ARGV)
    -- @include clock
    -- @include held
    local reply
    for place = count - 1, 0, -1 do
      local lock_key, lock_id = pop(KEYS), pop(ARGV)
      local stored = call('GET', lock_key)
      -- @include read
      -- @include group
      if group ~= nil then
        pop(KEYS)
      end
      if not stored or id ~= lock_id or group == false then
        reply = { 'syncguard:lost', lock_id, place, -1 }
      elseif expires <= held_after then
        reply = { 'syncguard:lost', lock_id, place, -2 }
      end
    end
    return reply
  end)()
  if lost then
    return lost
  end
end
