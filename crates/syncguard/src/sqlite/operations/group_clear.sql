-- Deletes the locks of readers that end at ?3 or before. The names of readers are from ?1 on, before ?2.
DELETE FROM syncguard_locks WHERE key >= ?1 AND key < ?2 AND expires_at_ms <= ?3;
