-- $1 the claims, as a JSON array with an object for each key: claim (the number of its first claim), take (how many
-- claims it has), and the names lock, fence and key; for slots also slots (how many there are) and first (the one at
-- which the search begins, from 0 on), and names that lack the number of the slot at their end; for readers also readers (how
-- many there are), group (the lock id of their group), gate (its name), and reader and reader_key (what their names and keys
-- begin with, before the lock id)   $2 lock ids of the claims, with commas between   $3 ttl ms{label_params}
-- The parameters of labels lack the lock id, which is put before them here.
--
-- It grants all claims or none. acquire.sql explains the steps. Here nothing is written before every lock is known to be
-- free and every counter to be unchanged, because a counter that rose without a grant would make others believe that the
-- key was held. Whatever waits for several locks of the server takes them in one order, so that no two wait for each other.
--
-- The lines of readers are left out where nobody asks to share a key. Readers take their own rows, and the first of them takes the
-- key for their group, as anybody takes it. The others join the group: they lock its row, and raise its end.
WITH
-- A lock that ends later than this is live. The clock is read once, because there may be a thousand slots to look at.
-- (IS TRUE behind a comparison keeps the planner from finding all live locks by the index on their ends.)
start AS MATERIALIZED (
  SELECT {live_after_ms} AS live_after_ms
),
-- Finds free places, as many as are claimed of each key. A plain key has one place, whose name is empty; slots have one for
-- each number. A key is free for readers, too, while their group has it, unless somebody has its gate. (A limit that is not a
-- constant makes the planner expect few rows.)
asked AS MATERIALIZED (
  SELECT
    claims.*,
{shared}    "group" IS NOT NULL AND EXISTS (
{shared}      SELECT FROM {locks}
{shared}      WHERE key = claims.lock AND lock_id = claims."group"
{shared}        AND (expires_at_ms > (SELECT live_after_ms FROM start)) IS TRUE
{shared}    ) AS joins,
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
{shared}          AND lock_id IS DISTINCT FROM claims."group"
{shared}      ) AND (
{shared}        claims.gate IS NULL OR NOT EXISTS (
{shared}          SELECT FROM {locks}
{shared}          WHERE key = claims.gate AND (expires_at_ms > (SELECT live_after_ms FROM start)) IS NOT FALSE
{shared}        )
      )
      LIMIT take
    ) AS free
  FROM (
    SELECT *
    FROM json_to_recordset($1::text::json) AS claims
{alone}      (claim integer, take integer, lock text, fence text, key text, slots integer, first integer)
{shared}      (
{shared}        claim integer, take integer, lock text, fence text, key text, slots integer, first integer,
{shared}        readers integer, "group" text, gate text, reader text, reader_key text
{shared}      )
    LIMIT (SELECT 100)
  ) claims
),
-- The caller's own locks, from an attempt whose answer was lost.
mine AS MATERIALIZED (
  SELECT key, lock_id, fence, expires_at_ms FROM {locks} AS lock
  WHERE lock_id = ANY (string_to_array($2, ','))
    AND (expires_at_ms > (SELECT live_after_ms FROM start)) IS TRUE
{shared}    AND {has_group}
),
-- What is to be taken with a new fence: also groups, but no readers.
picked AS MATERIALIZED (
  SELECT
{alone}    (string_to_array($2, ','))[claim + nth] AS id,
{shared}    claim + nth - 1 AS claim,
{shared}    coalesce("group", (string_to_array($2, ','))[claim + nth]) AS id,
{shared}    "group",
    lock || place AS lock,
    asked.fence || place AS fence,
    key || place AS key,
    (SELECT last.fence FROM {fences} AS last WHERE last.fence_key = asked.fence || place) AS count
  FROM asked, unnest(free) WITH ORDINALITY AS places (place, nth)
{shared}  WHERE NOT joins AND (SELECT bool_and(cardinality(free) = take) FROM asked) AND NOT EXISTS (SELECT FROM mine)
{shared}),
{shared}-- The readers. Each has the fence of its group.
{shared}entering AS MATERIALIZED (
{shared}  SELECT (string_to_array($2, ','))[claim + nth] AS id, lock, fence, reader, reader_key, joins
{shared}  FROM asked, generate_series(1, readers) AS nth
  WHERE (SELECT bool_and(cardinality(free) = take) FROM asked) AND NOT EXISTS (SELECT FROM mine)
),
turns AS MATERIALIZED (
  SELECT count(turn) AS number FROM (
    SELECT pg_advisory_xact_lock(hash)::text AS turn
    FROM (SELECT hashtext(lock) AS hash FROM picked ORDER BY 1) ordered
    WHERE (SELECT bool_and(coalesce(count, 0) BETWEEN 0 AND 899999999999999) FROM picked)
  ) taken
),
-- Whether the counters are still what the snapshot shows. From here on, only this statement writes them: it has the turns.
same AS MATERIALIZED (
  SELECT count(*) = (SELECT count(count) FROM picked) AS is_so FROM (
    SELECT fence_key, fence FROM {fences}
    WHERE fence_key = ANY (ARRAY(SELECT fence FROM picked)) AND (SELECT number FROM turns) > 0
    FOR UPDATE
  ) last JOIN picked ON picked.fence = last.fence_key AND picked.count = last.fence
),
-- Locks the rows of expired locks, and of groups to join. This waits for whatever others do with a row, except for a guard
-- (guard.sql), which may last long. So afterwards only a guard can keep a row from being locked FOR UPDATE, as the next step
-- tries.
there AS MATERIALIZED (
  SELECT key, lock_id, fence, expires_at_ms FROM {locks}
{alone}  WHERE key = ANY (ARRAY(SELECT lock FROM picked))
{shared}  WHERE key = ANY (ARRAY(SELECT lock FROM picked UNION ALL SELECT lock FROM entering WHERE joins))
    AND (SELECT is_so FROM same)
  ORDER BY key
  FOR NO KEY UPDATE
),
unguarded AS MATERIALIZED (
  SELECT key FROM {locks}
{alone}  WHERE key = ANY (ARRAY(SELECT key FROM there))
{shared}  WHERE key = ANY (ARRAY(SELECT there.key FROM there JOIN picked ON lock = there.key))
  FOR UPDATE SKIP LOCKED
),
-- The first claim whose lock is guarded.
guarded AS MATERIALIZED (
{alone}  SELECT min(array_position(string_to_array($2, ','), id)) - 1 AS claim
{shared}  SELECT min(claim) AS claim
  FROM picked JOIN there ON there.key = lock
  WHERE lock NOT IN (SELECT key FROM unguarded)
),
-- The time, read after the last wait. It has no row if a transaction that is not in the snapshot has extended an expired lock
-- in time after all, or if a group has ended.
ready AS MATERIALIZED (
  SELECT now_ms FROM (
    SELECT
{alone}      max(expires_at_ms) AS last_end_ms,
{shared}      max(expires_at_ms) FILTER (WHERE NOT is_joined) AS last_end_ms,
{shared}      min(expires_at_ms) FILTER (WHERE is_joined) AS first_end_ms,
{shared}      count(*) FILTER (WHERE is_joined) AS groups,
      {now_ms} AS now_ms,
      CASE current_setting('synchronous_commit')
        WHEN 'off' THEN set_config('synchronous_commit', 'on', true)
      END AS durable
{alone}    FROM there
{shared}    FROM (
{shared}      SELECT
{shared}        expires_at_ms,
{shared}        (key, lock_id) IN (SELECT lock, "group" FROM asked WHERE joins) AS is_joined
{shared}      FROM there
{shared}    ) locked
    OFFSET 0
  ) clock
{alone}  WHERE (SELECT number FROM turns) > 0
{shared}  WHERE (SELECT number FROM turns) = (SELECT count(*) FROM picked)
    AND (SELECT is_so FROM same)
    AND (SELECT claim FROM guarded) IS NULL
    AND (last_end_ms <= now_ms - {tolerance_ms}) IS NOT FALSE
{shared}    AND (first_end_ms > now_ms - {tolerance_ms}) IS NOT FALSE
{shared}    AND groups = (SELECT count(DISTINCT lock) FROM entering WHERE joins)
),
-- Makes the counters that are not in the snapshot. If one of them is there by now, the others were counted for nothing, which
-- acquire.sql allows for.
begun AS (
  INSERT INTO {fences} (fence_key, fence, key_debug)
  SELECT fence, greatest(1, least(now_ms, 90000000000000)), key FROM picked, ready WHERE count IS NULL
  ON CONFLICT (fence_key) DO NOTHING
  RETURNING fence_key, fence
),
-- Raises the counters that are there. This is no UPDATE, because for that the planner might read the whole table.
raised AS (
  INSERT INTO {fences} (fence_key, fence)
  SELECT fence, greatest(count + 1, least(now_ms, 90000000000000)) FROM picked, ready
  WHERE count IS NOT NULL
    AND (SELECT count(*) FROM begun) = (SELECT count(*) - count(count) FROM picked)
  ON CONFLICT (fence_key) DO UPDATE SET fence = excluded.fence
  RETURNING fence_key, fence
),
{alone}written AS (
{alone}  INSERT INTO {locks} AS lock (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key{label_columns})
{alone}  SELECT lock, id, now_ms + $3::bigint, now_ms, lpad(counted.fence::text, 15, '0'), key{label_values}
{alone}  FROM (SELECT * FROM begun UNION ALL SELECT * FROM raised) counted
{alone}    JOIN picked ON picked.fence = counted.fence_key,
{alone}    ready
{shared}-- The fences, if all have been counted.
{shared}counted AS MATERIALIZED (
{shared}  SELECT fence_key, lpad(fence::text, 15, '0') AS fence
{shared}  FROM (SELECT * FROM begun UNION ALL SELECT * FROM raised) each
  WHERE (SELECT count(*) FROM begun) + (SELECT count(*) FROM raised) = (SELECT count(*) FROM picked)
{shared}),
{shared}written AS (
{shared}  INSERT INTO {locks} AS lock (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key{label_columns})
{shared}  SELECT name, id, now_ms + $3::bigint, now_ms, fence, key{label_values}
{shared}  FROM (
{shared}    SELECT lock AS name, id, counted.fence, key, "group" FROM picked JOIN counted ON fence_key = picked.fence
{shared}    UNION ALL
{shared}    SELECT reader || id, id, coalesce(there.fence, counted.fence), reader_key || id, NULL
{shared}    FROM entering
{shared}      LEFT JOIN there ON joins AND there.key = entering.lock
{shared}      LEFT JOIN counted ON NOT joins AND fence_key = entering.fence
{shared}    WHERE (SELECT count(*) FROM counted) = (SELECT count(*) FROM picked)
{shared}  ) each, ready
  ON CONFLICT (key) DO UPDATE SET
    lock_id = excluded.lock_id,
    expires_at_ms = excluded.expires_at_ms,
    acquired_at_ms = excluded.acquired_at_ms,
    fence = excluded.fence,
    user_key = excluded.user_key{label_updates}
    WHERE lock.expires_at_ms <= excluded.acquired_at_ms - {tolerance_ms}
{shared}      -- A reader whose group was freed may come back.
{shared}      OR {is_reader} AND lock.lock_id = excluded.lock_id
  RETURNING key, lock_id, fence, expires_at_ms
{shared}),
{shared}joined AS (
{shared}  UPDATE {locks} AS lock SET
{shared}    expires_at_ms = greatest(lock.expires_at_ms, now_ms + $3::bigint),
{shared}    acquired_at_ms = greatest(lock.acquired_at_ms + 1, now_ms)
{shared}  FROM ready
{shared}  WHERE key = ANY (ARRAY(SELECT lock FROM entering WHERE joins))
{shared}    AND (SELECT count(*) FROM counted) = (SELECT count(*) FROM picked)
)
SELECT
  CASE
    -- Another program has written one of the locks without raising its counter. The cast fails and takes back the others.
    WHEN written BETWEEN 1 AND wanted - 1
      THEN ('a lock was written beside its counter: ' || written || ' of ' || wanted)::integer::text
    WHEN found = asked THEN 'acquired'
    WHEN found > 0 OR (SELECT bool_or(cardinality(free) < take) FROM asked) THEN 'locked'
{alone}    WHEN (SELECT number FROM turns) = 0 THEN 'exhausted'
{shared}    WHEN (SELECT number FROM turns) < (SELECT count(*) FROM picked) THEN 'exhausted'
    WHEN (SELECT claim FROM guarded) IS NOT NULL THEN 'locked'
    -- Somebody else was granted one of the locks after the snapshot.
    ELSE 'again'
  END AS outcome,
  CASE
    -- For each lock its id, fence and end, and for a slot its number.
    WHEN found = asked THEN grants
    -- The claim that is in the way, and in how many milliseconds its lock ends, unless it has ended meanwhile. Another's lock
    -- follows as JSON, because older tables lack columns of labels.
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
{alone}              SELECT CASE WHEN slots IS NULL THEN '' ELSE number::text END AS place
{shared}              SELECT lock || CASE WHEN slots IS NULL THEN '' ELSE number::text END AS name
              FROM generate_series(1, coalesce(slots, 1)) AS number
{shared}              UNION ALL
{shared}              SELECT gate WHERE gate IS NOT NULL
            ) places,
            LATERAL (
              SELECT * FROM {locks} AS one
{alone}              WHERE one.key = lock || place
{shared}              WHERE one.key = name
{shared}                AND lock_id IS DISTINCT FROM "group"
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
    -- The guarded claim without an end, because nobody knows when the guard's transaction ends.
    ELSE (SELECT claim || ' ' FROM guarded)
  END AS detail
FROM (
  SELECT
    cardinality(string_to_array($2, ',')) AS asked,
    (SELECT count(*) FROM written) AS written,
{alone}    cardinality(string_to_array($2, ',')) AS wanted,
{shared}    (SELECT count(*) FROM picked) + (SELECT count(*) FROM entering) AS wanted,
    count(*) AS found,
    string_agg(concat_ws(' ', lock_id, fence, expires_at_ms, substring(key FROM '[0-9]*$')), ',') AS grants
  FROM (
    SELECT * FROM written
{shared}    WHERE lock_id = ANY (string_to_array($2, ','))
    UNION ALL
    SELECT * FROM mine
  ) locks
) outcomes
