-- When the lock of the last reader of ?4 ends that is still held. The names of readers are from ?1 on, before ?2.
-- What expires after ?3 is held.
SELECT max(reader.expires_at_ms)
FROM syncguard_locks AS reader JOIN syncguard_locks AS lock ON lock.key = ?4
WHERE reader.key >= ?1 AND reader.key < ?2 AND reader.expires_at_ms > ?3 AND reader.fence = lock.fence;
