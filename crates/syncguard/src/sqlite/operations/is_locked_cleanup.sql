-- Only a lock that expired before ?2: one that was acquired or extended in the meantime stays.
DELETE FROM syncguard_locks WHERE key = ?1 AND expires_at_ms < ?2;
