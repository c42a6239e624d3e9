-- $1 lock ids with commas between   $2 tolerance ms   $3 'on' if no release may be forgotten in a crash
--
-- A row that somebody else has locked is left out, so that no release waits for another's row, and two
-- groups cannot wait for each other. A lock that is left out is then released alone.
WITH
free AS MATERIALIZED (
  SELECT key, lock_id FROM {locks}
  WHERE lock_id = ANY (string_to_array($1, ','))
  FOR UPDATE SKIP LOCKED
),
removed AS (
  DELETE FROM {locks} AS lock USING free
  WHERE lock.key = free.key AND lock.lock_id = free.lock_id
  RETURNING
    lock.lock_id,
    CASE
      WHEN expires_at_ms > floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - $2::bigint
      THEN 'released' ELSE 'expired'
    END AS outcome,
    {tell} AS told
)
SELECT
  string_agg(lock_id || ' ' || outcome, ',') AS outcomes,
  -- Applies only to this transaction, and is in force when it commits.
  CASE
    WHEN $3::text <> 'on' THEN set_config('synchronous_commit', 'off', true)
    WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true)
  END AS commit
FROM removed
