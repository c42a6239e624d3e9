-- The fence of a lock, if ?2 owns it, its lock id and its labels.
SELECT CASE WHEN lock_id = ?2 THEN fence END, lock_id, {labels} FROM syncguard_locks WHERE key = ?1;
