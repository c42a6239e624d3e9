-- $1 what stands in {column}: the storage key, or the lock id
--
-- The label is read through JSON, so that this also works on older tables without its column.
SELECT
  user_key,
  lock_id,
  expires_at_ms::text,
  acquired_at_ms::text,
  fence,
  to_jsonb(lock) ->> 'owner' AS owner,
  floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint::text AS now_ms
FROM {locks} AS lock
WHERE {column} = $1
