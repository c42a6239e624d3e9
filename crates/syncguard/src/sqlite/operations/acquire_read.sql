-- What the decision needs: the lock's expiry and the fence counter, each NULL if there is none yet.
SELECT
  (SELECT expires_at_ms FROM syncguard_locks WHERE key = ?1),
  (SELECT fence FROM syncguard_fence_counters WHERE fence_key = ?2);
