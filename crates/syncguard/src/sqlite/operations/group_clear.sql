-- The readers whose names are from ?1 on, before ?2, and that end at ?3 or before.
DELETE FROM syncguard_locks WHERE key >= ?1 AND key < ?2 AND expires_at_ms <= ?3;
