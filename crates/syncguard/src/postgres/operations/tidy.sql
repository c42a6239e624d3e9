-- $1 storage keys, as a JSON array   $2 'on' if no release may be forgotten in a crash
--
-- Lets each group end with the last of its readers, and frees the key if there is none. It is a statement of its own, so that its
-- snapshot does not have the readers any more who left before it. Whoever joins or extends raises acquired_at_ms of the group. So where that is
-- still what the snapshot shows, nobody has come since.
WITH
asked AS MATERIALIZED (
  SELECT name FROM json_array_elements_text($1::text::json) AS name
),
seen AS MATERIALIZED (
  SELECT
    lock.key,
    lock.lock_id,
    lock.acquired_at_ms,
    (
      SELECT max(readers.expires_at_ms) FROM (
        SELECT expires_at_ms, fence FROM {locks} AS lock WHERE {is_reader} AND left(lock.key, -24) = name OFFSET 0
      ) readers
      WHERE readers.fence = lock.fence AND {is_live}
    ) AS last_end_ms
  FROM asked JOIN {locks} AS lock ON lock.key = name AND {is_group}
),
-- Waits for whatever others do with a group, except for a guard (guard.sql).
same AS MATERIALIZED (
  SELECT seen.key, last_end_ms FROM seen JOIN {locks} AS shared ON shared.key = seen.key
  WHERE shared.lock_id = seen.lock_id AND shared.acquired_at_ms = seen.acquired_at_ms
  ORDER BY seen.key
  FOR NO KEY UPDATE OF shared
),
-- Tells the waiters, because they expect the later end.
lowered AS (
  UPDATE {locks} AS lock SET expires_at_ms = last_end_ms
  FROM same
  WHERE lock.key = same.key AND last_end_ms < expires_at_ms
  RETURNING {tell} AS told
),
-- A group that is guarded stays until its end.
ended AS MATERIALIZED (
  SELECT key FROM {locks} WHERE key = ANY (ARRAY(SELECT key FROM same WHERE last_end_ms IS NULL))
  FOR UPDATE SKIP LOCKED
),
freed AS (
  DELETE FROM {locks} AS lock USING ended
  WHERE lock.key = ended.key
  RETURNING {tell} AS told
),
-- What is left of readers who did not leave.
expired AS MATERIALIZED (
  SELECT lock.key FROM asked JOIN {locks} AS lock
    ON {is_reader} AND left(lock.key, -24) = name
  WHERE NOT ({is_live})
  FOR UPDATE OF lock SKIP LOCKED
),
removed AS (
  DELETE FROM {locks} AS lock USING expired WHERE lock.key = expired.key AND NOT ({is_live})
)
SELECT
  count(*)::text AS freed,
  -- Applies only to this transaction, and is in force when it commits.
  CASE
    WHEN $2::text <> 'on' THEN set_config('synchronous_commit', 'off', true)
    WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true)
  END AS commit
FROM freed
