-- $1 storage key
--
-- Releases the lock, whoever holds it. RETURNING reads the clock when the row is deleted, after any wait.
DELETE FROM {locks} AS lock WHERE key = $1
RETURNING
  CASE WHEN {is_live} THEN 'released' ELSE 'expired' END AS outcome,
  {tell} AS told
