-- $1 what is asked for, as a JSON array of objects with id and ttl   $2 tolerance ms
--
-- The steps and their reasons are those of extend.sql. A row that somebody else has locked is left out, so
-- that no extension waits for another's row, and two groups cannot wait for each other. A lock that is
-- left out is then extended alone.
WITH
held AS MATERIALIZED (
  SELECT key, lock_id, expires_at_ms, ttl
  FROM {locks} AS lock
  JOIN json_to_recordset($1::json) AS asked (id text, ttl bigint) ON lock.lock_id = asked.id
  FOR UPDATE OF lock SKIP LOCKED
),
judged AS MATERIALIZED (
  SELECT
    key,
    lock_id,
    now_ms + ttl AS extended_until,
    expires_at_ms > now_ms - $2::bigint AS is_live
  FROM (
    SELECT held.*, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms FROM held
  ) timed
),
extended AS (
  UPDATE {locks} AS lock SET expires_at_ms = judged.extended_until
  FROM judged
  WHERE judged.is_live AND lock.key = judged.key AND lock.lock_id = judged.lock_id
  RETURNING lock.lock_id, lock.expires_at_ms
),
removed AS (
  DELETE FROM {locks} AS lock USING judged
  WHERE NOT judged.is_live AND lock.key = judged.key AND lock.lock_id = judged.lock_id
  RETURNING lock.lock_id
)
SELECT
  string_agg(lock_id || ' ' || outcome, ',') AS outcomes,
  CASE current_setting('synchronous_commit')
    WHEN 'off' THEN set_config('synchronous_commit', 'on', true)
  END AS commit
FROM (
  SELECT lock_id, expires_at_ms::text AS outcome FROM extended
  UNION ALL
  SELECT lock_id, 'expired' FROM removed
) outcomes
