SELECT user_key, lock_id, expires_at_ms, acquired_at_ms, fence, owner
FROM syncguard_locks WHERE lock_id = ?1;
