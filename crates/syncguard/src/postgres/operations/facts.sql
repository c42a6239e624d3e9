-- $1, $2 names of the tables, quoted   $3, $4, $5 names of the indexes, quoted
WITH there AS (
  SELECT to_regclass($1) AS locks, to_regclass($2) AS fences,
    to_regclass($3) AS lock_id_index, to_regclass($4) AS expires_index,
    to_regclass($5) AS readers_index
)
SELECT
  current_setting('server_version') AS version,
  current_setting('server_version_num') AS "versionNumber",
  {now_ms}::text AS "serverTimeMs",
  pg_is_in_recovery()::text AS "isStandby",
  current_setting('transaction_read_only') AS "readOnly",
  current_setting('fsync') AS fsync,
  current_setting('full_page_writes') AS "fullPageWrites",
  current_setting('synchronous_standby_names') AS "synchronousStandbys",
  current_setting('synchronous_commit') AS "synchronousCommit",
  (SELECT count(*) FROM pg_stat_replication)::text AS standbys,
  -- Only some roles may see which kind a standby is of. For the others the number is unknown.
  (
    SELECT CASE WHEN count(*) = count(sync_state) THEN count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) END
    FROM pg_stat_replication
  )::text AS "confirmingStandbys",
  current_setting('max_connections') AS "maxConnections",
  (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')::text AS connections,
  -- Our own sessions set this when they begin, but a pooler drops it.
  (current_setting('enable_seqscan') = 'off')::text AS "ownSession",
  (locks IS NOT NULL)::text AS "locksTable",
  (fences IS NOT NULL)::text AS "fencesTable",
  (
    SELECT string_agg(name, ', ')
    FROM unnest(ARRAY['key', 'lock_id', 'expires_at_ms', 'acquired_at_ms', 'fence', 'user_key']) AS name
    WHERE NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = locks AND attname = name AND NOT attisdropped)
  ) AS "locksColumnsMissing",
  (
    SELECT string_agg(name, ', ')
    FROM unnest(ARRAY['fence_key', 'fence']) AS name
    WHERE NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = fences AND attname = name AND NOT attisdropped)
  ) AS "fencesColumnsMissing",
  EXISTS (
    SELECT FROM pg_attribute WHERE attrelid = locks AND attname = 'owner' AND NOT attisdropped
  )::text AS "ownerColumn",
  (
    SELECT count(*) = 3 FROM pg_attribute
    WHERE attrelid = fences AND attname IN ('done_due', 'done_at_ms', 'done_lock_id') AND NOT attisdropped
  )::text AS "doneColumns",
  EXISTS (
    SELECT FROM pg_index
    WHERE indexrelid = lock_id_index AND indrelid = locks AND indisunique AND indisvalid AND indisready
  )::text AS "lockIdIndex",
  EXISTS (
    SELECT FROM pg_index WHERE indexrelid = expires_index AND indrelid = locks AND indisvalid AND indisready
  )::text AS "expiresIndex",
  EXISTS (
    SELECT FROM pg_index WHERE indexrelid = readers_index AND indrelid = locks AND indisvalid AND indisready
  )::text AS "readersIndex",
  (
    SELECT string_agg(needed, ', ')
    FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS needed
    WHERE NOT has_table_privilege(locks, needed)
  ) AS "locksRightsMissing",
  (
    SELECT string_agg(needed, ', ')
    FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE']) AS needed
    WHERE NOT has_table_privilege(fences, needed)
  ) AS "fencesRightsMissing",
  {row_security} AS "rowSecurity",
  {row_policies} AS "rowPolicies",
  has_function_privilege('pg_notify(text, text)', 'EXECUTE')::text AS "mayNotify"
FROM there
