-- $1, $2 names of the tables, quoted   $3 numbers of transactions that were seen before, with commas between
-- $4 'all', or 'writers' for a change that those who read may go on beside
--
-- Who has the tables open, by the numbers of their transactions, and what may be known of one that was seen before. Of
-- other roles' sessions, the server tells the name, and not what they do. To whom the tables do not belong, a change is refused at
-- once, so that nobody is in the way.
SELECT
  string_agg(DISTINCT held.virtualtransaction, ',') AS present,
  min(
    CASE
      WHEN held.pid IS NULL THEN 'a prepared transaction'
      ELSE concat(
        'the server process ', held.pid,
        ' (' || nullif(
          concat_ws(', ', '"' || nullif(session.application_name, '') || '"', session.state, nullif(session.backend_type, 'client backend')),
          ''
        ) || ')'
      )
    END
  ) FILTER (WHERE held.virtualtransaction = ANY (string_to_array($3::text, ','))) AS stayed
FROM pg_locks AS held
  JOIN pg_class AS relation ON relation.oid = held.relation
  LEFT JOIN pg_stat_activity AS session ON session.pid = held.pid
WHERE held.locktype = 'relation'
  AND held.granted
  AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND held.relation IN (to_regclass($1::text)::oid, to_regclass($2::text)::oid)
  AND held.pid IS DISTINCT FROM pg_backend_pid()
  AND pg_has_role(relation.relowner, 'USAGE')
  AND ($4::text = 'all' OR held.mode NOT IN ('AccessShareLock', 'RowShareLock', 'ShareLock'))
