-- $1 lock ids with commas between
--
-- Users run it in a transaction of their own, with whatever client. If one of the locks is not held any more, it fails, and
-- the transaction with it: the casts say why. (Of a text alone, the planner would say so at once; what `concat` gives, it does
-- not know.) Else nobody can take the locks over, or free them, until the transaction ends: that changes or deletes a lock_id,
-- to which a foreign key might refer, as FOR KEY SHARE forbids. This rests on the unique index of lock_id.
SELECT CASE
  WHEN ({first_end}) > {live_after_ms} THEN
    CASE
      WHEN ({index_is_known}) IS NOT TRUE AND {found_index} IS NULL THEN concat('{no_index}')::integer::text
      ELSE 'held'
    END
  ELSE {lost_or}::integer::text
END AS guard
