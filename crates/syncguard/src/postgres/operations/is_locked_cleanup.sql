-- $1 storage key   $2 how long past its expiry a lock stays, ms
--
-- Deletes a lock that expired long enough ago, without waiting: a row that somebody else has locked is
-- left alone. Fence counters are never deleted.
WITH
stale AS MATERIALIZED (
  SELECT key FROM {locks}
  WHERE key = $1
    AND expires_at_ms < {now_ms} - $2::bigint
  FOR UPDATE SKIP LOCKED
),
removed AS (
  DELETE FROM {locks} AS lock USING stale
  WHERE lock.key = stale.key
    AND lock.expires_at_ms < {now_ms} - $2::bigint
  RETURNING {tell} AS told
)
SELECT
  CASE WHEN EXISTS (
    SELECT FROM {locks}
    WHERE key = $1
      AND {is_live}
  ) THEN 'locked' WHEN row_security_active('{locks}'::text) THEN 'unseen' ELSE 'free' END AS outcome
