-- $1 lock ids with commas between
--
-- Users run it in a transaction of their own, with whatever client. If one of the locks is not held any more, it fails, and
-- the transaction with it: the casts say why. (Of a constant, the planner would say so at once.) Else nobody can take the
-- locks over, or free them, until the transaction ends: that changes or deletes a lock_id, to which a foreign key might
-- refer, as FOR KEY SHARE forbids. This rests on the unique index of lock_id. The clock is read once the rows are locked.
SELECT
  CASE
    WHEN {index_is_missing}
      THEN ('{no_index}' || left(count(*)::text, 0))::integer::text
    WHEN count(*) < cardinality(string_to_array($1::text, ','))
      THEN ('{lost}' || cardinality(string_to_array($1::text, ',')) - count(*))::integer::text
    ELSE 'held'
  END AS guard
FROM (
  SELECT expires_at_ms FROM {locks}
  WHERE {is_wanted}
  FOR KEY SHARE
  OFFSET 0
) locked
WHERE expires_at_ms > floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - {tolerance}
