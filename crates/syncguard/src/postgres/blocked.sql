-- $1 storage key
--
-- A session that keeps the advisory lock of the key between its statements, or in a transaction that is not one of
-- ours: those take much less than a second. (Of other roles' sessions, the server may not tell when they began.)
SELECT held.pid::text AS process
FROM pg_locks held LEFT JOIN pg_stat_activity session ON session.pid = held.pid
WHERE held.locktype = 'advisory'
  AND held.granted
  AND held.objsubid = 1
  AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND held.classid::bigint = (hashtext($1)::bigint >> 32) & 4294967295
  AND held.objid::bigint = hashtext($1)::bigint & 4294967295
  AND (session.xact_start IS NULL OR session.xact_start < clock_timestamp() - interval '1 second')
LIMIT 1
