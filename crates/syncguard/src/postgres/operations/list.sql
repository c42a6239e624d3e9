-- $1 the name after which to begin   $2 how many
--
-- The page is one row, because transports give one row only. The locks are JSON, as in lookup.sql.
WITH now AS (
  SELECT {now_ms} AS ms
), page AS (
  SELECT lock.*
  FROM {locks} AS lock
  WHERE lock.key > $1 AND lock.expires_at_ms > (SELECT ms FROM now) - {tolerance_ms} AND {has_group}
  ORDER BY lock.key
  LIMIT $2::bigint
)
SELECT
  (SELECT ms::text FROM now) AS now_ms,
  coalesce((SELECT jsonb_agg(to_jsonb(page) ORDER BY page.key)::text FROM page), '[]') AS page
