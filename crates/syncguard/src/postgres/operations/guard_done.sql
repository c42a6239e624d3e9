-- $1 lock id   $2 storage key   $3 fence key   $4 user key   $5 due
--
-- Guards one lock, as guard.sql does, and stores that something is done under it. The mark stands only if the user's
-- transaction is committed. An acquisition locks the row of the counter before that of the lock, so this does, too.
WITH
turn AS MATERIALIZED (
  SELECT fence FROM {fences} WHERE fence_key = $3::text FOR UPDATE
),
held AS MATERIALIZED (
  SELECT FROM (
    SELECT expires_at_ms FROM {locks}
    WHERE lock_id = $1::text AND key = $2::text AND (SELECT count(*) FROM turn) >= 0
    FOR KEY SHARE
    OFFSET 0
  ) locked
  WHERE {is_live}
),
stored AS (
  INSERT INTO {fences} AS last (fence_key, fence, key_debug, done_due, done_at_ms, done_lock_id)
  SELECT $3::text, 0, $4::text, $5::text, {now_ms}, $1::text FROM held
  {keep_later}
)
SELECT
  CASE
    WHEN ({index_is_known}) IS NOT TRUE AND {found_index} IS NULL
      THEN concat('{no_index}')::integer::text
    WHEN count(*) = 0
      THEN {lost_or}::integer::text
    ELSE 'done'
  END AS guard
FROM held
