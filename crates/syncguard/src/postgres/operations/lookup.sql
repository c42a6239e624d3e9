-- $1 what stands in {column}: the storage key, or the lock id
--
-- As JSON, so that this also works on older tables, which lack columns of labels.
SELECT
  to_jsonb(lock)::text AS lock,
  floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint::text AS now_ms
FROM {locks} AS lock
WHERE {column} = $1
