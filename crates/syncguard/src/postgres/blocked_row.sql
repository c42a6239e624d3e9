-- $1 lock ids and storage keys, as a JSON array
--
-- A transaction that has locked the row of one of these locks. Who waits for it in the server shows where by a lock on the
-- tuple, which only the first of those has. Or one that has changed the row, and waits for a synchronous standby to confirm
-- that: until then, its number stands in the row as it was before.
SELECT process, wait_event FROM (
  SELECT
    holder::text AS process,
    (SELECT session.wait_event FROM pg_stat_activity AS session WHERE session.pid = holder) AS wait_event
  FROM {locks} AS lock
    JOIN pg_locks AS waiting ON waiting.locktype = 'tuple'
      AND waiting.granted
      AND waiting.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND waiting.relation = lock.tableoid
      AND waiting.page = (lock.ctid::text::point)[0]
      AND waiting.tuple = (lock.ctid::text::point)[1]
    CROSS JOIN LATERAL unnest(pg_blocking_pids(waiting.pid)) AS holder
  WHERE lock.key IN (SELECT json_array_elements_text($1::text::json))
    OR lock.lock_id IN (SELECT json_array_elements_text($1::text::json))
  UNION ALL
  SELECT session.pid::text, session.wait_event
  FROM {locks} AS lock JOIN pg_stat_activity AS session ON session.backend_xid = lock.xmax
  WHERE session.wait_event = 'SyncRep'
    AND (
      lock.key IN (SELECT json_array_elements_text($1::text::json))
      OR lock.lock_id IN (SELECT json_array_elements_text($1::text::json))
    )
) AS found
LIMIT 1
