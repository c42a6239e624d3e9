SELECT expires_at_ms FROM syncguard_locks WHERE key = ?1;
