-- $1 lock ids with commas between
--
-- Each id with its lock, as lookup.sql reads it, or with null. An id is left out where row level security may hide its lock.
SELECT
  jsonb_agg(jsonb_build_array(asked.lock_id, to_jsonb(lock)))::text AS locks,
  {now_ms}::text AS now_ms
FROM
  unnest(string_to_array($1, ',')) AS asked (lock_id)
  LEFT JOIN {locks} AS lock ON lock.lock_id = asked.lock_id
WHERE lock.key IS NOT NULL OR NOT row_security_active('{locks}'::text)
