-- $1 storage key   $2 tolerance ms
SELECT
  CASE WHEN EXISTS (
    SELECT FROM {locks}
    WHERE key = $1
      AND expires_at_ms > floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - $2::bigint
  ) THEN 'locked' WHEN row_security_active('{locks}'::text) THEN 'unseen' ELSE 'free' END AS outcome
