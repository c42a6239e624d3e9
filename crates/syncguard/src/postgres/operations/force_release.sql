-- $1 storage key
--
-- Releases the lock, whoever holds or shares it. RETURNING reads the clock when the row is deleted, after any wait. With a group go its
-- readers. One whose row somebody else has locked is left: without its group, it holds nothing.
WITH
freed AS (
  DELETE FROM {locks} AS lock WHERE key = $1
  RETURNING
    CASE WHEN {is_live} THEN 'released' ELSE 'expired' END AS outcome,
    {is_group} AS is_group,
    {tell} AS told
),
readers AS MATERIALIZED (
  SELECT key FROM {locks} AS lock
  WHERE {is_reader} AND left(lock.key, -24) = $1 AND (SELECT is_group FROM freed)
  FOR UPDATE SKIP LOCKED
),
removed AS (
  DELETE FROM {locks} AS lock USING readers WHERE lock.key = readers.key
)
SELECT outcome, told FROM freed
