DELETE FROM syncguard_locks WHERE key = ?1 AND lock_id = ?2;
