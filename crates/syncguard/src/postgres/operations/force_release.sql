-- $1 storage key   $2 tolerance ms
--
-- Releases the lock, whoever holds it. RETURNING reads the clock when the row is deleted, after any wait.
DELETE FROM {locks} AS lock WHERE key = $1
RETURNING
  CASE
    WHEN expires_at_ms > floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - $2::bigint
    THEN 'released' ELSE 'expired'
  END AS outcome,
  {tell} AS told
