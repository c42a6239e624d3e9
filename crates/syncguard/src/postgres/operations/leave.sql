-- $1 lock ids with commas between   $2 'on' if no release may be forgotten in a crash
--
-- Releases locks of which some may be readers', each for itself. Nobody owns a group, so it stays. tidy.sql, which the caller runs
-- after this, lets the groups of those who have left end with those who are left.
WITH
free AS MATERIALIZED (
  SELECT key, lock_id FROM {locks} AS lock
  WHERE lock_id = ANY (string_to_array($1, ',')) AND NOT {is_group}
  ORDER BY key
  FOR UPDATE
),
removed AS (
  DELETE FROM {locks} AS lock USING free
  WHERE lock.key = free.key AND lock.lock_id = free.lock_id
  RETURNING
    lock.lock_id,
    CASE WHEN NOT ({is_live}) THEN 'expired' WHEN {has_group} THEN 'released' ELSE 'gone' END AS outcome,
    CASE WHEN {is_reader} THEN left(lock.key, -24) END AS group_key,
    CASE WHEN NOT {is_reader} THEN {tell} END AS told
)
SELECT
  string_agg(lock_id || ' ' || outcome, ',') AS outcomes,
  json_agg(DISTINCT group_key) FILTER (WHERE group_key IS NOT NULL)::text AS groups,
  -- Applies only to this transaction, and is in force when it commits.
  CASE
    WHEN $2::text <> 'on' THEN set_config('synchronous_commit', 'off', true)
    WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true)
  END AS commit
FROM removed
