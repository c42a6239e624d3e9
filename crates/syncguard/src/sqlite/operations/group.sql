SELECT lock_id, expires_at_ms, fence, {labels} FROM syncguard_locks WHERE key = ?1;
