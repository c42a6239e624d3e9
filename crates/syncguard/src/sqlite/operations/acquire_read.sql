-- What the decision needs: the lock's end, its fence if ?3 owns it, and the fence counter, each NULL if there is none yet.
SELECT held.expires_at_ms, iif(held.lock_id = ?3, held.fence, NULL), counter.fence
FROM (SELECT 1)
LEFT JOIN syncguard_locks AS held ON held.key = ?1
LEFT JOIN syncguard_fence_counters AS counter ON counter.fence_key = ?2;
