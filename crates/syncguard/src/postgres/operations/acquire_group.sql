-- $1 what is asked for, as a JSON array of objects with lock, fence, key, id, ttl and labels
--
-- It grants keys that nobody holds and nobody else is acquiring, so it waits for nothing. acquire.sql explains
-- the steps. An item that is neither granted nor reported as locked is acquired alone after this.
WITH
call AS MATERIALIZED (
  SELECT
    seen.*,
    -- A key that has a row, even an expired one, gets no turn, because it might have to wait for that row.
    CASE WHEN expires_at_ms IS NULL AND count BETWEEN 0 AND 899999999999999 THEN
      CASE WHEN pg_try_advisory_xact_lock(hashtext(lock)) THEN
        CASE current_setting('synchronous_commit')
          WHEN 'off' THEN set_config('synchronous_commit', 'on', true)
          ELSE ''
        END
      END
    END IS NOT NULL AS has_turn
  FROM (
    SELECT
      asked.*,
      coalesce((SELECT fence FROM {fences} AS last WHERE last.fence_key = asked.fence), 0) AS count,
      (
        -- The caller's own lock, from an attempt whose answer was lost, gets an end long past: so it is neither
        -- granted here nor reported as locked.
        SELECT CASE WHEN lock_id = asked.id THEN 0 ELSE expires_at_ms END
        FROM {locks} AS held WHERE held.key = asked.lock
      ) AS expires_at_ms
    FROM json_to_recordset($1::json) AS asked (lock text, fence text, key text, id text, ttl bigint{label_params})
    OFFSET 0
  ) seen
),
counted AS (
  INSERT INTO {fences} AS last (fence_key, fence, key_debug)
  SELECT fence, greatest(count + 1, least({now_ms}, 90000000000000)), key FROM call WHERE has_turn
  ON CONFLICT (fence_key) DO UPDATE SET fence = excluded.fence
    WHERE last.fence = (SELECT count FROM call WHERE call.fence = last.fence_key)
  RETURNING
    fence_key,
    lpad(fence::text, 15, '0') AS fence,
    {now_ms} AS now_ms
),
granted AS (
  INSERT INTO {locks} (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key{label_columns})
  SELECT call.lock, call.id, now_ms + call.ttl, now_ms, counted.fence, call.key{label_values}
  FROM counted JOIN call ON call.fence = counted.fence_key
  ON CONFLICT (key) DO NOTHING
  RETURNING lock_id, fence, expires_at_ms
)
SELECT string_agg(outcome, ',') AS outcomes FROM (
  SELECT lock_id || ' ' || fence || ' ' || expires_at_ms AS outcome FROM granted
  UNION ALL
  -- The lock is JSON, because older tables lack columns of labels. It is in hexadecimal digits, because these contain neither
  -- a blank nor a comma.
  SELECT id || ' locked ' || free_in_ms || ' ' || coalesce(
    (
      SELECT encode(convert_to(to_jsonb(another)::text, 'UTF8'), 'hex')
      FROM {locks} AS another WHERE another.key = held.lock
    ),
    ''
  )
  FROM (
    SELECT id, lock, expires_at_ms - {live_after_ms} AS free_in_ms
    FROM call
    OFFSET 0
  ) held
  WHERE free_in_ms > 0
) outcomes
