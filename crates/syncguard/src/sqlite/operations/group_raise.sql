UPDATE syncguard_locks SET expires_at_ms = ?2 WHERE key = ?1 AND expires_at_ms < ?2;
