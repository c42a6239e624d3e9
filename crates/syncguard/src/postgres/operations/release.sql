-- $1 lock id   $2 'on' if the release may not be forgotten in a crash
--
-- The row is deleted whether the lock is live or expired. After a wait for another's row lock, the
-- WHERE is checked on the row's new version, and RETURNING reads the clock when the row is deleted.
DELETE FROM {locks} AS lock WHERE lock_id = $1
RETURNING
  lock_id,
  CASE WHEN {is_live} THEN 'released' ELSE 'expired' END AS outcome,
  -- Applies only to this transaction, and is in force when it commits.
  CASE
    WHEN $2::text <> 'on' THEN set_config('synchronous_commit', 'off', true)
    WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true)
  END AS commit,
  {tell} AS told
