-- $1 fence key
SELECT concat_ws(' ', done_at_ms, done_lock_id, done_due) AS mark FROM {fences} WHERE fence_key = $1 AND done_due IS NOT NULL
