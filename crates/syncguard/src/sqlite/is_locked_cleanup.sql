-- Only what expired before ?2: a lock that was taken or extended in the meantime stays.
DELETE FROM syncguard_locks WHERE key = ?1 AND expires_at_ms < ?2;
