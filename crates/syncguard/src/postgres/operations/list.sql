-- $1 the name after which to begin   $2 how many
--
-- One row, because that is what the transports give. The locks are JSON, as in lookups.
WITH now AS (
  SELECT {now_ms} AS ms
), page AS (
  SELECT lock.*
  FROM {locks} AS lock
  WHERE lock.key > $1 AND lock.expires_at_ms > (SELECT ms FROM now) - {tolerance_ms}
  ORDER BY lock.key
  LIMIT $2::bigint
)
SELECT
  (SELECT ms::text FROM now) AS now_ms,
  coalesce((SELECT jsonb_agg(to_jsonb(page) ORDER BY page.key)::text FROM page), '[]') AS page
