-- The fence of a lock, if ?2 owns it, and its labels.
SELECT CASE WHEN lock_id = ?2 THEN fence END, {labels} FROM syncguard_locks WHERE key = ?1;
