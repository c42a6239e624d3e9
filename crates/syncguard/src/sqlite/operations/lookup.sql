-- ?1 what stands in {column}: the storage key, or the lock id
SELECT user_key, lock_id, expires_at_ms, acquired_at_ms, fence, {labels}
FROM syncguard_locks WHERE {column} = ?1;
