-- $1, $2 names of the tables, quoted   $3, $4, $5 names of the indexes, quoted
WITH there AS (
  SELECT to_regclass($1) AS locks, to_regclass($2) AS fences,
    to_regclass($3) AS lock_id_index, to_regclass($4) AS expires_index,
    to_regclass($5) AS readers_index
)
SELECT
  (
    fences IS NOT NULL
    AND EXISTS (SELECT FROM pg_index WHERE indexrelid = lock_id_index AND indrelid = locks AND indisunique)
    AND EXISTS (SELECT FROM pg_index WHERE indexrelid = expires_index AND indrelid = locks)
  )::text AS complete,
  EXISTS (
    SELECT FROM pg_attribute WHERE attrelid = fences AND attname = 'key_debug' AND NOT attisdropped
  )::text AS named,
  (
    SELECT bool_and(EXISTS (
      SELECT FROM pg_attribute WHERE attrelid = locks AND attname = name AND NOT attisdropped
    ))
    FROM unnest(ARRAY[{labels}]) AS name
  )::text AS labelled,
  (
    SELECT count(*) = 3 FROM pg_attribute
    WHERE attrelid = fences AND attname IN ('done_due', 'done_at_ms', 'done_lock_id') AND NOT attisdropped
  )::text AS marked,
  EXISTS (SELECT FROM pg_index WHERE indexrelid = readers_index AND indrelid = locks)::text AS indexed
FROM there
