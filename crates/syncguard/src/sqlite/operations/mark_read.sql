SELECT due, done_at_ms, lock_id FROM syncguard_done WHERE fence_key = ?1;
