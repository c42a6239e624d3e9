-- $1 storage key   $2 fence key   $3 user key   $4 lock id   $5 ttl ms{due_param}{label_params}
--
-- The snapshot of a statement is taken before its first wait, so after the wait for the advisory lock
-- no plain SELECT can be trusted. Therefore the two INSERT ... ON CONFLICT decide: they work on the last
-- committed version of a row, whatever the snapshot shows, and the clock is read when they have that row.
-- Each step takes rows from the one before it, which fixes their order. There are few parts, because each
-- one costs the server time before the statement starts.
WITH
-- A snapshot that shows a live lock can be trusted: the key was held after this call began. Otherwise
-- the advisory lock allows one acquisition of a key at a time, also of other writers. A fence that is
-- lost in a crash would be given twice, so this transaction is durable even if the session's are not.
call AS MATERIALIZED (
  SELECT
    fence,
    held,{done}
    CASE WHEN held IS NULL{is_due} AND fence BETWEEN 0 AND 899999999999999 THEN
      pg_advisory_xact_lock(hashtext($1))::text
        || CASE current_setting('synchronous_commit')
             WHEN 'off' THEN set_config('synchronous_commit', 'on', true)
             ELSE ''
           END
    END IS NOT NULL AS has_turn
  FROM (
    SELECT
      coalesce((SELECT fence FROM {fences} WHERE fence_key = $2), 0) AS fence,
      (
        -- Describes the lock that is there. The caller's own lock, from an attempt whose answer was lost, is granted
        -- again as it was: its text is the fence and the end. The text of another's lock is a blank, its end, and the
        -- whole lock as JSON, because older tables lack columns of labels. An expired lock may have to be waited for,
        -- or be guarded, so acquire_all.sql takes it over.
        SELECT
          CASE
            WHEN {is_live} THEN
              CASE WHEN lock_id = $4 THEN fence ELSE '' END || ' ' || expires_at_ms
                || CASE WHEN lock_id = $4 THEN '' ELSE ' ' || to_jsonb(lock)::text END
            ELSE 'over'
          END
        FROM {locks} AS lock WHERE key = $1
      ) AS held{done_read}
    OFFSET 0
  ) seen
),
-- The new fence is the time after the wait, so that fences go on rising where a counter was lost, or the next number if
-- that is higher. The time counts up to a bound only, so that no clock uses up the numbers. If the counter differs from
-- the snapshot, an acquisition raised it during the wait: the key was held after this call began, so no number is used.
counted AS (
  INSERT INTO {fences} AS last (fence_key, fence, key_debug)
  SELECT $2, greatest(fence + 1, least({now_ms}, 90000000000000)), $3 FROM call WHERE has_turn
  ON CONFLICT (fence_key) DO UPDATE SET fence = excluded.fence
    WHERE last.fence = (SELECT fence FROM call){still_due}
  RETURNING
    lpad(fence::text, 15, '0') AS fence,
    {now_ms} AS now_ms
),
granted AS (
  INSERT INTO {locks} (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key{label_columns})
  SELECT $1, $4, now_ms + $5::bigint, now_ms, fence, $3{label_values} FROM counted
  ON CONFLICT (key) DO NOTHING
  RETURNING fence, expires_at_ms
)
SELECT
  CASE
    WHEN held = 'over' THEN 'over'
    WHEN granted.fence IS NOT NULL OR held NOT LIKE ' %' THEN 'acquired'
    {done_outcome}-- A first count proves no holder: an acquisition of several locks may have counted for nothing (acquire_all.sql).
    WHEN has_turn AND call.fence = 0 THEN 'again'
    WHEN held IS NOT NULL OR has_turn THEN 'locked'
    ELSE 'exhausted'
  END AS outcome,
  coalesce(granted.fence, nullif(split_part(held, ' ', 1), ''), {done_detail}call.fence::text) AS fence,
  coalesce(granted.expires_at_ms::text, split_part(held, ' ', 2)) AS expires_at_ms,
  CASE WHEN held LIKE ' %' THEN
    (split_part(held, ' ', 2)::bigint - {live_after_ms})::text
  END AS free_in_ms,
  substring(held FROM '^ [0-9]+ (.*)$') AS lock
FROM call LEFT JOIN granted ON true
