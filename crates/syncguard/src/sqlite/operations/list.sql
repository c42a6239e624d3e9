-- ?1 the name after which to begin   ?2 what expires later is held   ?3 how many
SELECT user_key, lock_id, expires_at_ms, acquired_at_ms, fence, {labels}, key
FROM syncguard_locks WHERE key > ?1 AND expires_at_ms > ?2 ORDER BY key LIMIT ?3;
