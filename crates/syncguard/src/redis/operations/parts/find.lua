-- `lock_key` and `stored`: the name and the value of the lock to which the index entry KEYS[1] leads, if there is one. KEYS[2] is the
-- lock, where it is known. ARGV[1] is the lock id, and `bare` the index key without the client's own prefix, if there may be one.
-- Replies -4 when the index leads to another lock than the one that was given.
local lock_key = call('GET', KEYS[1])
local stored
if lock_key then
  if KEYS[2] then
    -- In a cluster, and on some other servers, a script touches only what it was given.
    if lock_key ~= KEYS[2]
        and string.sub(KEYS[1], 1, #KEYS[1] - #(bare or KEYS[1])) .. lock_key ~= KEYS[2] then
      return -4
    end
    lock_key = KEYS[2]
  end
  stored = call('GET', lock_key)
  -- A library that does not know its client's prefix writes index entries whose lock name lacks it.
  if not KEYS[2] and bare and #bare < #KEYS[1]
      and not (stored and string.find(stored, ARGV[1], 1, true)) then
    lock_key = string.sub(KEYS[1], 1, #KEYS[1] - #bare) .. lock_key
    stored = call('GET', lock_key)
  end
end
