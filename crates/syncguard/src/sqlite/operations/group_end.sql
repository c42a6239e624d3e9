UPDATE syncguard_locks SET expires_at_ms = ?3 WHERE key = ?1 AND lock_id = ?2 AND expires_at_ms > ?3;
