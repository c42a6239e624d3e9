-- $1 lock id   $2 storage key   $3 fence key   $4 user key   $5 due
--
-- Releases the lock, and stores that something is done, if the lock is live still. An acquisition locks the row of the counter
-- before that of the lock, so this does, too. As in release.sql, RETURNING reads the clock when the row is deleted. A mark
-- that is lost in a crash would let it be done again, so this transaction is durable even if the session's are not.
WITH
turn AS MATERIALIZED (
  SELECT fence FROM {fences} WHERE fence_key = $3 FOR UPDATE
),
freed AS (
  DELETE FROM {locks} AS lock
  WHERE lock_id = $1 AND key = $2 AND (SELECT count(*) FROM turn) >= 0
  RETURNING
    lock_id,
    {is_live} AS is_live,
    CASE current_setting('synchronous_commit')
      WHEN 'off' THEN set_config('synchronous_commit', 'on', true)
    END AS commit,
    {tell} AS told
),
stored AS (
  INSERT INTO {fences} AS last (fence_key, fence, key_debug, done_due, done_at_ms, done_lock_id)
  SELECT $3, 0, $4, $5, {now_ms}, $1 FROM freed WHERE is_live
  {keep_later}
)
SELECT lock_id, CASE WHEN is_live THEN 'released' ELSE 'expired' END AS outcome, commit, told FROM freed
