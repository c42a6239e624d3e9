-- $1 storage key
SELECT
  CASE WHEN EXISTS (
    SELECT FROM {locks}
    WHERE key = $1
      AND {is_live}
  ) THEN 'locked' WHEN row_security_active('{locks}'::text) THEN 'unseen' ELSE 'free' END AS outcome
