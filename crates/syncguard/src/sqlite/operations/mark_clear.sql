DELETE FROM syncguard_done WHERE fence_key = ?1;
