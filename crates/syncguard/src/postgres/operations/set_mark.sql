-- $1 fence key   $2 user key   $3 due, or nothing to clear the mark   $4 lock id
--
-- Replaces the mark, whatever it was, and tells what was there before. The row is locked before it is read.
WITH
before AS MATERIALIZED (
  SELECT done_at_ms, done_lock_id, done_due FROM {fences} WHERE fence_key = $1 FOR UPDATE
),
changed AS (
  INSERT INTO {fences} AS last (fence_key, fence, key_debug, done_due, done_at_ms, done_lock_id)
  SELECT
    $1, 0, $2, nullif($3, ''),
    CASE WHEN $3 <> '' THEN {now_ms} END,
    CASE WHEN $3 <> '' THEN $4 END
  FROM (SELECT count(*) FROM before) locked
  ON CONFLICT (fence_key) DO UPDATE SET
    done_due = excluded.done_due,
    done_at_ms = excluded.done_at_ms,
    done_lock_id = excluded.done_lock_id
  RETURNING
    CASE current_setting('synchronous_commit')
      WHEN 'off' THEN set_config('synchronous_commit', 'on', true)
    END AS commit
)
SELECT
  (SELECT concat_ws(' ', done_at_ms, done_lock_id, done_due) FROM before WHERE done_due IS NOT NULL) AS mark,
  (SELECT count(commit) FROM changed)::text AS commit
