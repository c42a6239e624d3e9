-- $1 the name after which to begin   $2 tolerance ms   $3 how many
--
-- One row, because that is what the transports give. Labels are read through JSON, as in lookups.
WITH now AS (
  SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms
), page AS (
  SELECT
    lock.key AS name,
    lock.user_key,
    lock.lock_id,
    lock.expires_at_ms,
    lock.acquired_at_ms,
    lock.fence,
    to_jsonb(lock) ->> 'owner' AS owner
  FROM {locks} AS lock
  WHERE lock.key > $1 AND lock.expires_at_ms > (SELECT ms FROM now) - $2::bigint
  ORDER BY lock.key
  LIMIT $3::bigint
)
SELECT
  (SELECT ms::text FROM now) AS now_ms,
  coalesce((SELECT jsonb_agg(to_jsonb(page) ORDER BY page.name)::text FROM page), '[]') AS page
