-- $1 lock ids with commas between
--
-- Users run it in a transaction of their own, with any client. If one of the locks is not held any more, the cast of a text to a
-- number fails, with the text in its error, and the transaction fails with it, or in a savepoint that alone. (The planner would
-- carry out the cast of a constant in any case, so `concat` makes the text.) Otherwise nobody can take over or free the locks until
-- the transaction ends: that would change or delete a lock_id, which FOR KEY SHARE forbids because a foreign key might refer to it.
-- It does so only where lock_id has its unique index.
SELECT CASE
  WHEN ({first_end}) > {live_after_ms} THEN
    CASE
      WHEN ({index_is_known}) IS NOT TRUE AND {found_index} IS NULL THEN concat('{no_index}')::integer::text
      ELSE 'held'
    END
  ELSE {lost_or}::integer::text
END AS guard
