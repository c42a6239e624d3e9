SELECT key, lock_id, expires_at_ms, fence FROM syncguard_locks WHERE lock_id = ?1;
