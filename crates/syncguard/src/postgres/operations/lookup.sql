-- $1 what stands in {column}: the storage key, or the lock id
--
-- The lock is JSON, so that this also works on older tables, which lack columns of labels.
SELECT
  to_jsonb(lock)::text AS lock,
  {now_ms}::text AS now_ms
-- A row without a lock says that there may be one, which row level security hides.
FROM (SELECT) AS one LEFT JOIN {locks} AS lock ON {column} = $1
{shared}  AND {has_group}
WHERE lock.key IS NOT NULL OR row_security_active('{locks}'::text)
