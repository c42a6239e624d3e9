-- $1 names of tables, quoted   $2 storage keys, one for each of the tables
--
-- Marks these locks as ones for which somebody waits, for as long as this session lasts. Each mark waits for
-- releases that have not seen it and are about to commit. The hash of a lock says on which channel to listen
-- and in which bucket its mark is. In a table that does not exist, locks have no hash and get no mark.
SELECT
  number - 1 AS number,
  hash,
  pg_backend_pid() AS process,
  pg_advisory_lock_shared({class}, (hash & 63)::integer)::text AS mark
FROM (
  SELECT number, {hash} AS hash
  FROM (
    SELECT number, key, to_regclass(locks) AS locks
    FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS asked (locks, key, number)
    OFFSET 0
  ) AS lock
  OFFSET 0
) AS hashed
