-- $1 lock ids   $2 for each, the number of the set that it belongs to   $3 for each, its ttl ms; all with commas between
--
-- Extends each set, all of its locks or none. The rows are locked first, in one order, and only then is the clock read: an
-- UPDATE alone would use the time from before its wait for another's row lock. If a crash lost the extension, somebody
-- else would get the lock early, so this transaction is durable even if the session's transactions are not. The lines of readers
-- are left out where there are none.
WITH
asked AS MATERIALIZED (
  SELECT * FROM unnest(
    string_to_array($1, ','),
    string_to_array($2::text, ',')::integer[],
    string_to_array($3::text, ',')::bigint[]
  ) AS asked (id, part, ttl)
),
{shared}-- The groups of the readers among them, whose ids begin with an underscore.
{shared}groups AS MATERIALIZED (
{shared}  SELECT shared.lock_id, shared.key, shared.fence
{shared}  FROM {locks} AS lock JOIN {locks} AS shared ON shared.key = left(lock.key, -24) AND shared.fence = lock.fence
{shared}  WHERE lock.lock_id = ANY (ARRAY(SELECT id FROM asked WHERE left(id, 1) = '_')) AND {is_reader}
{shared}),
held AS MATERIALIZED (
  SELECT key, lock_id, expires_at_ms, fence FROM {locks}
{alone}  WHERE lock_id = ANY (string_to_array($1, ','))
{shared}  WHERE lock_id = ANY (string_to_array($1, ',') || ARRAY(SELECT lock_id FROM groups))
  ORDER BY key
  FOR NO KEY UPDATE{skip}
),
judged AS MATERIALIZED (
  SELECT timed.*, bool_and(is_live IS TRUE) OVER (PARTITION BY part) AS is_whole
  FROM (
    SELECT
      id,
      lock.key,
      part,
{shared}      shared.key AS group_key,
{shared}      now_ms,
      now_ms + ttl AS extended_until,
{alone}      lock.expires_at_ms > now_ms - {tolerance_ms} AS is_live
{alone}    FROM asked LEFT JOIN held AS lock ON lock.lock_id = id,
{shared}      {is_reader} AND shared.key IS NULL AS is_alone,
{shared}      {is_reader} AND least(lock.expires_at_ms, shared.expires_at_ms) > now_ms + ttl AS is_sooner,
{shared}      CASE
{shared}        WHEN {is_reader} AND shared.key IS NULL THEN
{shared}          -- A group that is there, but is not among what is locked, was skipped, or is gone by now: nothing is known of it.
{shared}          CASE WHEN NOT EXISTS (SELECT FROM groups WHERE key = left(lock.key, -24) AND fence = lock.fence) THEN false END
{shared}        ELSE lock.expires_at_ms > now_ms - {tolerance_ms}
{shared}      END AS is_live
{shared}    FROM asked
{shared}      -- Nobody owns a group.
{shared}      LEFT JOIN held AS lock ON lock.lock_id = id AND NOT {is_group}
{shared}      LEFT JOIN held AS shared ON {is_reader} AND shared.key = left(lock.key, -24) AND shared.fence = lock.fence,
      (SELECT count(*), {now_ms} AS now_ms FROM held) clock
  ) timed
),
extended AS (
  UPDATE {locks} AS lock SET expires_at_ms = extended_until
  FROM judged
  WHERE is_whole AND lock.key = judged.key AND lock.lock_id = judged.id
  RETURNING lock.lock_id, lock.expires_at_ms
{shared}),
{shared}-- A group ends no earlier than its readers. It tells tidy.sql by acquired_at_ms that one has been extended. Where one ends sooner
{shared}-- than before, the caller runs that after this.
{shared}raised AS (
{shared}  UPDATE {locks} AS lock SET
{shared}    expires_at_ms = greatest(lock.expires_at_ms, last_end_ms),
{shared}    acquired_at_ms = greatest(lock.acquired_at_ms + 1, now_ms)
{shared}  FROM (
{shared}    SELECT group_key, now_ms, max(extended_until) AS last_end_ms FROM judged
{shared}    WHERE is_whole AND group_key IS NOT NULL
{shared}    GROUP BY group_key, now_ms
{shared}  ) readers
{shared}  WHERE lock.key = group_key
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
{shared}  (SELECT json_agg(DISTINCT group_key)::text FROM judged WHERE is_whole AND is_sooner) AS groups,
  CASE current_setting('synchronous_commit')
    WHEN 'off' THEN set_config('synchronous_commit', 'on', true)
  END AS commit
FROM (
  SELECT lock_id, expires_at_ms::text AS outcome FROM extended
  UNION ALL
{alone}  SELECT id, 'expired' FROM judged WHERE NOT is_live
{shared}  SELECT id, CASE WHEN is_alone THEN 'gone' ELSE 'expired' END FROM judged WHERE NOT is_live
  UNION ALL
  SELECT id, 'live' FROM judged WHERE is_live AND NOT is_whole
  UNION ALL
  -- A row that was skipped because somebody else has locked it is not gone.
  SELECT id, 'gone' FROM judged
  WHERE is_live IS NULL AND NOT EXISTS (SELECT FROM {locks} AS lock WHERE lock.lock_id = id)
) outcomes
