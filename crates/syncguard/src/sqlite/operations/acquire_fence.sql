INSERT INTO syncguard_fence_counters (fence_key, fence, key_debug)
VALUES (?1, ?2, ?3)
ON CONFLICT (fence_key) DO UPDATE SET fence = excluded.fence;
