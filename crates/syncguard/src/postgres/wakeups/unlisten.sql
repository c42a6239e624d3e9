-- $1 hashes of locks
--
-- Takes back the marks that listen.sql has made, one for each.
SELECT pg_advisory_unlock_shared({class}, (hash & 63)::integer) FROM unnest($1::bigint[]) AS hash
