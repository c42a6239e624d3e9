-- $1 lock ids   $2 for each, the number of the set that it belongs to   $3 for each, its ttl ms; all with commas between
--
-- Extends each set, all of its locks or none. The rows are locked first, in one order, and only then is the clock read: an
-- UPDATE alone would use the time from before its wait for another's row lock. If a crash lost the extension, somebody
-- else would get the lock early, so this transaction is durable even if the session's transactions are not.
WITH
asked AS MATERIALIZED (
  SELECT * FROM unnest(
    string_to_array($1, ','),
    string_to_array($2::text, ',')::integer[],
    string_to_array($3::text, ',')::bigint[]
  ) AS asked (id, part, ttl)
),
held AS MATERIALIZED (
  SELECT key, lock_id, expires_at_ms FROM {locks}
  WHERE lock_id = ANY (string_to_array($1, ','))
  ORDER BY key
  FOR NO KEY UPDATE{skip}
),
judged AS MATERIALIZED (
  SELECT timed.*, bool_and(is_live IS TRUE) OVER (PARTITION BY part) AS is_whole
  FROM (
    SELECT
      id,
      key,
      part,
      now_ms + ttl AS extended_until,
      expires_at_ms > now_ms - {tolerance_ms} AS is_live
    FROM asked LEFT JOIN held ON lock_id = id,
      (SELECT count(*), {now_ms} AS now_ms FROM held) clock
  ) timed
),
extended AS (
  UPDATE {locks} AS lock SET expires_at_ms = extended_until
  FROM judged
  WHERE is_whole AND lock.key = judged.key AND lock.lock_id = judged.id
  RETURNING lock.lock_id, lock.expires_at_ms
),
-- Finds expired locks to remove. One that is guarded (guard.sql) stays, because nobody waits for a guard.
removable AS MATERIALIZED (
  SELECT lock.key, lock.lock_id FROM {locks} AS lock JOIN judged ON lock.key = judged.key AND lock.lock_id = judged.id
  WHERE NOT is_live
  FOR UPDATE OF lock SKIP LOCKED
),
removed AS (
  DELETE FROM {locks} AS lock USING removable
  WHERE lock.key = removable.key AND lock.lock_id = removable.lock_id
)
SELECT
  string_agg(lock_id || ' ' || outcome, ',') AS outcomes,
  CASE current_setting('synchronous_commit')
    WHEN 'off' THEN set_config('synchronous_commit', 'on', true)
  END AS commit
FROM (
  SELECT lock_id, expires_at_ms::text AS outcome FROM extended
  UNION ALL
  SELECT id, 'expired' FROM judged WHERE NOT is_live
  UNION ALL
  SELECT id, 'live' FROM judged WHERE is_live AND NOT is_whole
  UNION ALL
  -- A row that was skipped because somebody else has locked it is not gone.
  SELECT id, 'gone' FROM judged
  WHERE is_live IS NULL AND NOT EXISTS (SELECT FROM {locks} AS lock WHERE lock.lock_id = id)
) outcomes
