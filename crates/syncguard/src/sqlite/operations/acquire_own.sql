-- The fence of a lock, if ?2 owns it.
SELECT fence FROM syncguard_locks WHERE key = ?1 AND lock_id = ?2;
