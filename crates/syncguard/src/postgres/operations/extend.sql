-- $1 lock id   $2 tolerance ms   $3 ttl ms
--
-- The row is locked first, and only then is the clock read: an UPDATE alone would use the time from
-- before its wait for another's row lock. If a crash lost the extension, somebody else would get the
-- lock early, so this transaction is durable even if the session's transactions are not.
WITH
held AS MATERIALIZED (
  SELECT key, expires_at_ms FROM {locks} WHERE lock_id = $1 FOR UPDATE
),
judged AS MATERIALIZED (
  SELECT
    key,
    now_ms,
    expires_at_ms > now_ms - $2::bigint AS is_live,
    CASE current_setting('synchronous_commit')
      WHEN 'off' THEN set_config('synchronous_commit', 'on', true)
    END AS durable
  FROM (
    SELECT key, expires_at_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms
    FROM held
  ) timed
),
extended AS (
  UPDATE {locks} AS lock SET expires_at_ms = judged.now_ms + $3::bigint
  FROM judged
  WHERE judged.is_live AND lock.key = judged.key AND lock.lock_id = $1
  RETURNING lock.lock_id, lock.expires_at_ms
),
removed AS (
  DELETE FROM {locks} AS lock USING judged
  WHERE NOT judged.is_live AND lock.key = judged.key AND lock.lock_id = $1
  RETURNING lock.lock_id
)
SELECT lock_id, 'extended' AS outcome, expires_at_ms::text FROM extended
UNION ALL
SELECT lock_id, 'expired', NULL FROM removed
