-- $1 lock ids with commas between   $2 'on' if no release may be forgotten in a crash
--
-- Each lock for itself. The rows are locked in one order for all, so that no two releases wait for each other.
WITH
free AS MATERIALIZED (
  SELECT key, lock_id FROM {locks}
  WHERE lock_id = ANY (string_to_array($1, ','))
  ORDER BY key
  FOR UPDATE{skip}
),
removed AS (
  DELETE FROM {locks} AS lock USING free
  WHERE lock.key = free.key AND lock.lock_id = free.lock_id
  RETURNING
    lock.lock_id,
    CASE WHEN {is_live} THEN 'released' ELSE 'expired' END AS outcome,
    {tell} AS told
)
SELECT
  string_agg(lock_id || ' ' || outcome, ',') AS outcomes,
  -- Applies only to this transaction, and is in force when it commits.
  CASE
    WHEN $2::text <> 'on' THEN set_config('synchronous_commit', 'off', true)
    WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true)
  END AS commit
FROM removed
