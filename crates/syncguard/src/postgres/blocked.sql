-- $1 storage keys, as a JSON array
--
-- A session that keeps the advisory lock of a key between its statements, or in a transaction that is not one of
-- ours: those take much less than a second. (Of other roles' sessions, the server may not tell when they began.)
SELECT held.pid::text AS process, session.wait_event AS wait_event
FROM pg_locks held LEFT JOIN pg_stat_activity session ON session.pid = held.pid
WHERE held.locktype = 'advisory'
  AND held.granted
  AND held.objsubid = 1
  AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (held.classid::bigint, held.objid::bigint) IN (
    SELECT (hashtext(lock)::bigint >> 32) & 4294967295, hashtext(lock)::bigint & 4294967295
    FROM json_array_elements_text($1::text::json) AS lock
  )
  AND (session.xact_start IS NULL OR session.xact_start < clock_timestamp() - interval '1 second')
LIMIT 1
