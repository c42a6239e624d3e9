(
  -- The tables with row level security of which this role has not all rows to read and to write: by a policy for it that says
  -- true, and none that restricts it.
  SELECT string_agg(relation.relname, ', ')
  FROM pg_class AS relation
  WHERE relation.oid IN (to_regclass($1::text)::oid, to_regclass($2::text)::oid)
    AND row_security_active(relation.oid)
    AND EXISTS (
      SELECT FROM unnest(ARRAY['r', 'a', 'w', 'd']) AS command
      WHERE coalesce((
        SELECT bool_or(policy.polpermissive AND policy.says_true) AND bool_and(policy.polpermissive)
        FROM (
          SELECT
            polpermissive,
            coalesce(
              pg_get_expr(CASE WHEN command = 'a' THEN coalesce(polwithcheck, polqual) ELSE polqual END, polrelid),
              'true'
            ) = 'true' AS says_true
          FROM pg_policy
          WHERE polrelid = relation.oid
            AND polcmd::text IN ('*', command)
            AND EXISTS (
              SELECT FROM unnest(polroles) AS role
              WHERE role = 0 OR pg_has_role(role, 'USAGE')
            )
        ) AS policy
      ), false) IS FALSE
        AND NOT (command = 'd' AND relation.oid = to_regclass($2::text)::oid)
    )
)
