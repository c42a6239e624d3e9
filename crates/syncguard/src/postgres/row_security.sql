(
  -- The tables with row level security of which that is so for some command that locks need.
  SELECT string_agg(relation.relname, ', ')
  FROM pg_class AS relation
  WHERE relation.oid IN (to_regclass($1::text)::oid, to_regclass($2::text)::oid)
    AND row_security_active(relation.oid)
    AND EXISTS (
      SELECT FROM unnest(ARRAY['r', 'a', 'w', 'd']) AS command
      WHERE coalesce((
        SELECT {found}
        FROM (
          -- Those for this role. What they say is not judged, unless it is a constant.
          SELECT
            polpermissive,
            coalesce(
              pg_get_expr(CASE WHEN command = 'a' THEN coalesce(polwithcheck, polqual) ELSE polqual END, polrelid),
              'true'
            ) AS says
          FROM pg_policy
          WHERE polrelid = relation.oid
            AND polcmd::text IN ('*', command)
            AND EXISTS (
              SELECT FROM unnest(polroles) AS role
              WHERE role = 0 OR pg_has_role(role, 'USAGE')
            )
        ) AS policy
      ), true)
        AND NOT (command = 'd' AND relation.oid = to_regclass($2::text)::oid)
    )
)
