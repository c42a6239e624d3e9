INSERT INTO syncguard_done (fence_key, due, done_at_ms, lock_id, key_debug)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (fence_key) DO UPDATE SET
  due = excluded.due,
  done_at_ms = excluded.done_at_ms,
  lock_id = excluded.lock_id;
