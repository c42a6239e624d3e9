-- $1 what is claimed, as a JSON array of objects, one for each key, with claim (the number of its first claim), take
-- (how many claims), and the names lock, fence and key; for slots also slots (how many there are), first (at which to
-- begin, from 0 on) and names that lack the number of the slot at their end   $2 lock ids of the claims, with commas
-- between   $3 ttl ms{label_params}
-- Of labels it has what follows the lock id.
--
-- All or nothing. The reasons for the steps are those of acquire.sql. What differs: nothing is written before every lock
-- is known to be free and every counter to be unchanged, because a counter that rose without a grant would make others
-- believe that the key was held. Who waits for several locks of the server takes them in the order in which all do.
WITH
-- What ends later is live. Read once, because there may be a thousand slots to look at. (With IS TRUE, no index on the
-- ends serves to find all live locks.)
start AS MATERIALIZED (
  SELECT {live_after_ms} AS live_after_ms
),
-- The places where the locks may be: of a plain key one, of slots their numbers. Those that nobody holds, as many as are
-- asked for. (A limit that is not a constant makes the planner expect few rows.)
asked AS MATERIALIZED (
  SELECT
    claims.*,
    ARRAY(
      SELECT place
      FROM (
        SELECT CASE WHEN slots IS NULL THEN '' ELSE ((first + step) % slots + 1)::text END AS place
        FROM generate_series(0, coalesce(slots, 1) - 1) AS step
        OFFSET 0
      ) places
      WHERE NOT EXISTS (
        SELECT FROM {locks}
        WHERE key = claims.lock || place
          AND (expires_at_ms > (SELECT live_after_ms FROM start)) IS NOT FALSE
      )
      LIMIT take
    ) AS free
  FROM (
    SELECT *
    FROM json_to_recordset($1::text::json) AS claims
      (claim integer, take integer, lock text, fence text, key text, slots integer, first integer)
    LIMIT (SELECT 100)
  ) claims
),
-- The caller's own locks, from an attempt whose answer was lost.
mine AS MATERIALIZED (
  SELECT key, lock_id, fence, expires_at_ms FROM {locks}
  WHERE lock_id = ANY (string_to_array($2, ','))
    AND (expires_at_ms > (SELECT live_after_ms FROM start)) IS TRUE
),
picked AS MATERIALIZED (
  SELECT
    (string_to_array($2, ','))[claim + nth] AS id,
    lock || place AS lock,
    asked.fence || place AS fence,
    key || place AS key,
    (SELECT last.fence FROM {fences} AS last WHERE last.fence_key = asked.fence || place) AS count
  FROM asked, unnest(free) WITH ORDINALITY AS places (place, nth)
  WHERE (SELECT bool_and(cardinality(free) = take) FROM asked) AND NOT EXISTS (SELECT FROM mine)
),
turns AS MATERIALIZED (
  SELECT count(turn) AS number FROM (
    SELECT pg_advisory_xact_lock(hash)::text AS turn
    FROM (SELECT hashtext(lock) AS hash FROM picked ORDER BY 1) ordered
    WHERE (SELECT bool_and(coalesce(count, 0) BETWEEN 0 AND 899999999999999) FROM picked)
  ) taken
),
-- Whether the counters that the snapshot shows are as it shows them. Only who has the turns writes them.
same AS MATERIALIZED (
  SELECT count(*) = (SELECT count(count) FROM picked) AS is_so FROM (
    SELECT fence_key, fence FROM {fences}
    WHERE fence_key = ANY (ARRAY(SELECT fence FROM picked)) AND (SELECT number FROM turns) > 0
    FOR UPDATE
  ) last JOIN picked ON picked.fence = last.fence_key AND picked.count = last.fence
),
-- The rows of locks whose time is over. What others do with them is waited for, unless it is a guard (guard.sql): that lasts
-- for as long as its transaction, and alone can now keep a row from being locked as a whole.
expired AS MATERIALIZED (
  SELECT key, expires_at_ms FROM {locks}
  WHERE key = ANY (ARRAY(SELECT lock FROM picked)) AND (SELECT is_so FROM same)
  ORDER BY key
  FOR NO KEY UPDATE
),
unguarded AS MATERIALIZED (
  SELECT key FROM {locks} WHERE key = ANY (ARRAY(SELECT key FROM expired)) FOR UPDATE SKIP LOCKED
),
-- The claim of which the lock is guarded.
guarded AS MATERIALIZED (
  SELECT min(array_position(string_to_array($2, ','), id)) - 1 AS claim
  FROM picked JOIN expired ON expired.key = lock
  WHERE lock NOT IN (SELECT key FROM unguarded)
),
-- The time, if no expired lock was extended in time after all, by a transaction that is not in the snapshot. It is read
-- after the last wait.
ready AS MATERIALIZED (
  SELECT now_ms FROM (
    SELECT
      max(expires_at_ms) AS last_end_ms,
      {now_ms} AS now_ms,
      CASE current_setting('synchronous_commit')
        WHEN 'off' THEN set_config('synchronous_commit', 'on', true)
      END AS durable
    FROM expired
    OFFSET 0
  ) clock
  WHERE (SELECT number FROM turns) > 0
    AND (SELECT is_so FROM same)
    AND (SELECT claim FROM guarded) IS NULL
    AND (last_end_ms <= now_ms - {tolerance_ms}) IS NOT FALSE
),
-- Counters that are not in the snapshot. If one is there by now, the others have been counted for nothing: acquire.sql
-- knows.
begun AS (
  INSERT INTO {fences} (fence_key, fence, key_debug)
  SELECT fence, greatest(1, least(now_ms, 90000000000000)), key FROM picked, ready WHERE count IS NULL
  ON CONFLICT (fence_key) DO NOTHING
  RETURNING fence_key, fence
),
-- Not an UPDATE, for which the planner might read the whole table.
raised AS (
  INSERT INTO {fences} (fence_key, fence)
  SELECT fence, greatest(count + 1, least(now_ms, 90000000000000)) FROM picked, ready
  WHERE count IS NOT NULL
    AND (SELECT count(*) FROM begun) = (SELECT count(*) - count(count) FROM picked)
  ON CONFLICT (fence_key) DO UPDATE SET fence = excluded.fence
  RETURNING fence_key, fence
),
granted AS (
  INSERT INTO {locks} AS held (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key{label_columns})
  SELECT lock, id, now_ms + $3::bigint, now_ms, lpad(counted.fence::text, 15, '0'), key{label_values}
  FROM (SELECT * FROM begun UNION ALL SELECT * FROM raised) counted
    JOIN picked ON picked.fence = counted.fence_key,
    ready
  WHERE (SELECT count(*) FROM begun) + (SELECT count(*) FROM raised) = (SELECT count(*) FROM picked)
  ON CONFLICT (key) DO UPDATE SET
    lock_id = excluded.lock_id,
    expires_at_ms = excluded.expires_at_ms,
    acquired_at_ms = excluded.acquired_at_ms,
    fence = excluded.fence,
    user_key = excluded.user_key{label_updates}
    WHERE held.expires_at_ms <= excluded.acquired_at_ms - {tolerance_ms}
  RETURNING key, lock_id, fence, expires_at_ms
)
SELECT
  CASE
    -- A writer that does not count has written one of the locks. The error takes back the others.
    WHEN granted BETWEEN 1 AND asked - 1
      THEN ('a lock was written beside its counter: ' || granted || ' of ' || asked)::integer::text
    WHEN found = asked THEN 'acquired'
    WHEN found > 0 OR (SELECT bool_or(cardinality(free) < take) FROM asked) THEN 'locked'
    WHEN (SELECT number FROM turns) = 0 THEN 'exhausted'
    WHEN (SELECT claim FROM guarded) IS NOT NULL THEN 'locked'
    -- Somebody else was granted one of the locks after the snapshot.
    ELSE 'again'
  END AS outcome,
  CASE
    -- Of each lock its id, fence and end, and of slots the number.
    WHEN found = asked THEN grants
    -- The claim in the way, when it ends, if it still has not, and another's lock as JSON, because older tables lack columns of
    -- labels.
    WHEN found > 0 THEN (
      SELECT (array_position(string_to_array($2, ','), lock_id) - 1) || ' '
        || expires_at_ms - {live_after_ms}
      FROM mine ORDER BY array_position(string_to_array($2, ','), lock_id) LIMIT 1
    )
    WHEN (SELECT number FROM turns) = 0 THEN coalesce(
      (
        SELECT concat((claim + cardinality(free)), ' ', (
          SELECT expires_at_ms - {live_after_ms}
            || ' ' || to_jsonb(soonest)::text
          FROM (
            SELECT held.*
            FROM (
              SELECT CASE WHEN slots IS NULL THEN '' ELSE number::text END AS place
              FROM generate_series(1, coalesce(slots, 1)) AS number
            ) places,
            LATERAL (
              SELECT * FROM {locks} AS one
              WHERE one.key = lock || place
                AND (expires_at_ms > (SELECT live_after_ms FROM start)) IS TRUE
              OFFSET 0
            ) held
            ORDER BY expires_at_ms LIMIT 1
          ) soonest
        ))
        FROM asked WHERE cardinality(free) < take ORDER BY claim LIMIT 1
      ),
      (SELECT max(count)::text FROM picked)
    )
    -- Nobody knows when its transaction ends.
    ELSE (SELECT claim || ' ' FROM guarded)
  END AS detail
FROM (
  SELECT
    cardinality(string_to_array($2, ',')) AS asked,
    (SELECT count(*) FROM granted) AS granted,
    count(*) AS found,
    string_agg(concat_ws(' ', lock_id, fence, expires_at_ms, substring(key FROM '[0-9]*$')), ',') AS grants
  FROM (SELECT * FROM granted UNION ALL SELECT * FROM mine) locks
) outcomes
