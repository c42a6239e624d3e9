-- The locks on the slots of a key, whose names are from ?1 on, before ?2.
SELECT key, lock_id, expires_at_ms, {labels} FROM syncguard_locks WHERE key >= ?1 AND key < ?2;
