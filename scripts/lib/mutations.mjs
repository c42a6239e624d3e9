// The library, broken on purpose: each mutation is a defect that somebody could write, and that the check of
// histories must find. What is not here cannot be seen by any client: docs/reliability/mutations.md.

const CORE = "crates/syncguard/src";
const TROUBLE = ["stop", "kill"];

/** What runs do not show, because it takes an entry of another writer or a rare moment: a test of the core that must fail. */
function tested(suite, test, mutation) {
  return { ...mutation, store: `test ${suite}`, test: { suite, name: test }, trouble: [] };
}

/** `edits`: in which file of the core which text, which occurs exactly once, becomes which. */
function mutation(name, store, breaks, edits, trouble = TROUBLE) {
  const inCore = edits.map(([file, find, replace]) => ({
    file: `${CORE}/${file}`,
    find,
    replace,
  }));
  return { name, store, breaks, edits: inCore, trouble };
}

const FREE_AND_DELETE = "call('DEL', lock_key, KEYS[1])\nlocal";
const PG_CLOCK = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
const PG_TIME = `least(${PG_CLOCK}, 90000000000000)`;
const PG_LIVE = `WHEN expires_at_ms > ${PG_CLOCK} - $6::bigint`;

// With the time in it, a fence that is not counted is repeated only within a millisecond.
const REDIS_WITHOUT_TIME = [
  "redis/operations/acquire.lua",
  "math.max(counter + 1, math.min(now, 90000000000000))",
  "counter + 1",
];
const SQLITE_WITHOUT_TIME = [
  "asking/granting.rs",
  "Fence::after(lock.counter, now_ms)",
  "Fence::after(lock.counter, 0)",
];

const redis = [
  mutation("redis-tolerance", "redis", "A lock counts as free as soon as its TTL is over.", [
    ["redis/operations/acquire.lua", "expires + ARGV[3] - now or 0", "expires - now or 0"],
  ]),
  mutation("redis-lifetime", "redis", "Redis forgets a lock when its TTL is over.", [
    [
      "redis/operations/grant.lua",
      "call('SET', KEYS[1], value, 'PX', ARGV[7])",
      "call('SET', KEYS[1], value, 'PX', ARGV[2])",
    ],
  ]),
  tested(
    "redis",
    "nothing_runs_without_the_lock",
    mutation("redis-eval-ownership", "redis", "A script does not check whose lock it runs under.", [
      ["redis/operations/held.lua", "not stored or id ~= lock_id", "not stored"],
    ]),
  ),
  tested(
    "redis",
    "nothing_runs_without_the_lock",
    mutation("redis-eval-expiry", "redis", "A script runs under a lock whose time is over.", [
      ["redis/operations/held.lua", "expires <= now - tolerance", "false"],
    ]),
  ),
  tested(
    "redis",
    "all_of_several_locks_must_be_held",
    mutation("redis-eval-first", "redis", "A script asks for the first of several locks only.", [
      ["redis/operations/eval.lua", "for place = count - 1, 0, -1 do", "for place = 0, 0 do"],
    ]),
  ),
  tested(
    "redis",
    "an_index_that_leads_to_anothers_lock_frees_nothing",
    mutation("redis-release-ownership", "redis", "A release does not check whose lock it frees.", [
      [
        "redis/operations/release.lua",
        "if id ~= ARGV[1] then\n  return 0",
        "if false then\n  return 0",
      ],
    ]),
  ),
  mutation(
    "redis-client-time",
    "redis",
    "An acquisition takes the client's time.",
    [
      [
        "redis/operations/get.lua",
        "local lock_key = KEYS[1]",
        "if ARGV[8] then now = tonumber(ARGV[8]) end\nlocal lock_key = KEYS[1]",
      ],
      [
        "redis/operations/acquire.rs",
        ".number(lifetime_ms(",
        ".number_after(&crate::time::SystemClock, lifetime_ms(",
      ],
      [
        "redis/plan.rs",
        "    /// Adds `name` as an argument from which",
        `    pub(super) fn number_after(self, clock: &dyn crate::time::Clock, number: i64) -> Self {
        self.number(number).number(clock.now_ms())
    }

    /// Adds \`name\` as an argument from which`,
      ],
    ],
    ["shift"],
  ),
  mutation(
    "redis-fence-after-grant",
    "redis",
    "A fence is a number, counted when its lock is released.",
    [
      REDIS_WITHOUT_TIME,
      ["redis/operations/grant.lua", "  call('SET', KEYS[3], counted)\n", ""],
      [
        "redis/operations/release.lua",
        FREE_AND_DELETE,
        "call('INCR', 'syncguard:fence:' .. lock_key)\ncall('DEL', lock_key, KEYS[1])\nlocal",
      ],
    ],
  ),
  mutation(
    "redis-release-counter",
    "redis",
    "A fence is a number, and a release deletes its counter.",
    [
      REDIS_WITHOUT_TIME,
      [
        "redis/operations/release.lua",
        FREE_AND_DELETE,
        "call('DEL', lock_key, KEYS[1], 'syncguard:fence:' .. lock_key)\nlocal",
      ],
    ],
  ),
  mutation(
    "redis-force-counter",
    "redis",
    "A fence is a number, and a forced release deletes its counter.",
    [
      REDIS_WITHOUT_TIME,
      [
        "redis/operations/force_release.lua",
        "call('DEL', lock_key)\n",
        "call('DEL', lock_key, 'syncguard:fence:' .. lock_key)\n",
      ],
    ],
  ),
  mutation("redis-extend-lifetime", "redis", "Redis forgets an extended lock at its first end.", [
    [
      "redis/operations/prolong.lua",
      "redis.pcall('SET', lock_key, stored, 'PX', ARGV[4])",
      "redis.pcall('SET', lock_key, stored, 'KEEPTTL')",
    ],
  ]),
  mutation("redis-is-locked-tolerance", "redis", "`isLocked` leaves out the tolerance.", [
    ["redis/operations/is_locked.lua", "if expires > now - ARGV[2] then", "if expires > now then"],
  ]),
  mutation("redis-release-tells-nobody", "redis", "A release wakes nobody.", [
    ["redis/operations/wake.lua", "  redis.pcall('PUBLISH', channel, '')", "  local _ = ''"],
  ]),
];

const cluster = [
  mutation("cluster-tolerance", "redis-cluster", "The same as `redis-tolerance`, in a cluster.", [
    ["redis/operations/acquire.lua", "expires + ARGV[3] - now or 0", "expires - now or 0"],
  ]),
  mutation("cluster-shard", "redis-cluster", "A lock id does not fit the slot of its key.", [
    [
      "redis/backend.rs",
      "claim.lock_id = claim.lock_id.clone().with_first_byte(shard);",
      "claim.lock_id = claim.lock_id.clone().with_first_byte(shard ^ 1);",
    ],
  ]),
  tested(
    "redis_cluster",
    "an_index_that_leads_elsewhere_frees_nothing",
    mutation(
      "cluster-ownership",
      "redis-cluster",
      "A release does not check whose lock it frees.",
      [
        [
          "redis/operations/release.lua",
          "if id ~= ARGV[1] then\n  return 0",
          "if false then\n  return 0",
        ],
      ],
    ),
  ),
  mutation(
    "cluster-tells-elsewhere",
    "redis-cluster",
    "A release is told on the other kind of channel.",
    [
      [
        "redis/operations/wake.lua",
        "type(redis.pcall('SPUBLISH', channel, '')) == 'table'",
        "type(redis.pcall('SPUBLISH', KEYS[1], '')) == 'table'",
      ],
    ],
  ),
];

const postgres = [
  mutation("postgres-tolerance", "postgres", "A lock counts as free as soon as its TTL is over.", [
    ["postgres/operations/acquire.sql", PG_LIVE, `WHEN expires_at_ms > ${PG_CLOCK}`],
    [
      "postgres/operations/acquire_all.sql",
      `SELECT ${PG_CLOCK} - $4::bigint AS live_after_ms`,
      `SELECT ${PG_CLOCK} AS live_after_ms`,
    ],
    [
      "postgres/operations/acquire_all.sql",
      "(last_end_ms <= now_ms - $4::bigint)",
      "(last_end_ms <= now_ms)",
    ],
    [
      "postgres/operations/acquire_all.sql",
      "held.expires_at_ms <= excluded.acquired_at_ms - $4::bigint",
      "held.expires_at_ms <= excluded.acquired_at_ms",
    ],
  ]),
  mutation("postgres-expiry", "postgres", "An acquisition ignores the expiry of the row.", [
    ["postgres/operations/acquire.sql", PG_LIVE, "WHEN $6::bigint IS NOT NULL"],
  ]),
  mutation("postgres-advisory", "postgres-mixed", "An acquisition forgets the advisory lock.", [
    ["postgres/operations/acquire.sql", "pg_advisory_xact_lock(hashtext($1))::text", "''"],
  ]),
  mutation(
    "postgres-client-time",
    "postgres",
    "An acquisition takes the client's time.",
    [
      [
        "postgres/operations/acquire.rs",
        `let sql = include_str!("acquire.sql");`,
        `let sql = include_str!("acquire.sql");
        let time = "(timestamptz 'epoch' + $7::bigint * interval '1 ms')";
        let sql = &sql.replace("clock_timestamp()", time);`,
      ],
      ["postgres/operations/acquire.rs", "6, tables, columns", "7, tables, columns"],
      [
        "postgres/operations/acquire.rs",
        "return self.always.bind(params, labels);",
        `let now_ms = crate::time::Clock::now_ms(&crate::time::SystemClock);
            params.push(Param::BigInt(now_ms));
            return self.always.bind(params, labels);`,
      ],
    ],
    ["shift"],
  ),
  mutation("postgres-fence-guard", "postgres", "A fence is counted from an old snapshot.", [
    [
      "postgres/operations/acquire.sql",
      "    WHERE last.fence = (SELECT fence FROM call){still_due}\n",
      "",
    ],
  ]),
  mutation(
    "postgres-release-counter",
    "postgres",
    "A fence is a number, and a release deletes its counter.",
    [
      ["postgres/operations/acquire.sql", `greatest(fence + 1, ${PG_TIME})`, "fence + 1"],
      ["postgres/operations/acquire_group.sql", `greatest(count + 1, ${PG_TIME})`, "count + 1"],
      [
        "postgres/operations/release.sql",
        "DELETE FROM {locks} AS lock WHERE lock_id = $1",
        `WITH gone AS (
  DELETE FROM {fences} WHERE fence_key = (SELECT 'fence:' || key FROM {locks} WHERE lock_id = $1)
)
DELETE FROM {locks} AS lock WHERE lock_id = $1`,
      ],
    ],
  ),
  tested(
    "postgres",
    "a_lock_that_is_taken_over_during_the_wait_is_left_alone",
    mutation("postgres-release-without-id", "postgres", "A release frees whatever is on its key.", [
      [
        "postgres/operations/release.sql",
        "WHERE lock_id = $1",
        "WHERE key = (SELECT key FROM {locks} WHERE lock_id = $1)",
      ],
      ["postgres/operations/release.sql", "  lock_id,\n", "  $1::text AS lock_id,\n"],
    ]),
  ),
  mutation(
    "postgres-release-expired",
    "postgres",
    "A release says of an expired lock that it freed it.",
    [
      [
        "postgres/operations/release.sql",
        "THEN 'released' ELSE 'expired'",
        "THEN 'released' ELSE 'released'",
      ],
    ],
  ),
  mutation(
    "postgres-extend-expired",
    "postgres",
    "An extension brings an expired lock back to life.",
    [
      [
        "postgres/operations/extend.sql",
        "expires_at_ms > now_ms - $4::bigint AS is_live",
        "expires_at_ms > now_ms - $4::bigint * 1000 AS is_live",
      ],
    ],
  ),
  tested(
    "postgres",
    "a_guarded_lock_is_not_taken_over_when_its_time_is_over",
    mutation(
      "postgres-guard-unlocked",
      "postgres",
      "A guard looks at the lock and does not keep it.",
      [["postgres/operations/guard.rs", '$1::text FOR KEY SHARE";', '$1::text";']],
    ),
  ),
  tested(
    "postgres",
    "a_lock_whose_time_is_over_cannot_be_guarded",
    mutation("postgres-guard-expired", "postgres", "A guard finds a lock whose time is over.", [
      ["postgres/operations/guard.sql", "({first_end}) >", "({first_end}) > 0 *"],
    ]),
  ),
  tested(
    "postgres",
    "without_the_unique_index_nothing_is_guarded",
    mutation("postgres-guard-index", "postgres", "A guard does not look for its index.", [
      [
        "postgres/operations/guard.sql",
        "{found_index} IS NULL THEN",
        "{found_index} IS NULL AND false THEN",
      ],
    ]),
  ),
  tested(
    "postgres",
    "what_is_done_is_stored_with_the_transaction_or_not_at_all",
    mutation(
      "postgres-done-unlocked",
      "postgres",
      "What is done is stored, and the lock not kept.",
      [["postgres/operations/guard_done.sql", "    FOR KEY SHARE\n", ""]],
    ),
  ),
  tested(
    "postgres",
    "a_stale_holder_stores_nothing_in_a_transaction",
    mutation("postgres-done-expired", "postgres", "What is done is stored after the lock's time.", [
      [
        "postgres/operations/guard_done.sql",
        "WHERE expires_at_ms >",
        "WHERE expires_at_ms IS NOT NULL OR 0 >",
      ],
    ]),
  ),
  tested(
    "postgres",
    "what_was_committed_is_done_though_the_lock_is_lost",
    mutation(
      "postgres-done-forgotten",
      "postgres",
      "What was stored in a transaction does not count once the lock is gone.",
      [
        [
          "holding/guard/releasing.rs",
          "if self.state.begin_release() || may_be_done",
          "if self.state.begin_release()",
        ],
      ],
    ),
  ),
  tested(
    "postgres",
    "a_guarded_lock_is_not_taken_over_when_its_time_is_over",
    mutation(
      "postgres-takeover-waits",
      "postgres",
      "Who wants a guarded lock waits for the guard.",
      [["postgres/operations/acquire_all.sql", "FOR UPDATE SKIP LOCKED", "FOR UPDATE"]],
    ),
  ),
  tested(
    "postgres",
    "extensions_and_heartbeats_do_not_wait_for_a_guard",
    mutation("postgres-extend-waits", "postgres", "An extension waits for a guard.", [
      ["postgres/operations/extend.sql", "FOR NO KEY UPDATE{skip}", "FOR UPDATE{skip}"],
    ]),
  ),
  mutation("postgres-tells-nobody", "postgres", "A release wakes nobody.", [
    [
      "postgres/operations/release.rs",
      `Statement::telling(include_str!("release.sql"), tables, columns)`,
      `Statement::new(&include_str!("release.sql").replace("{tell}", "NULL"), tables, columns)`,
    ],
  ]),
  tested(
    "postgres",
    "it_comes_with_the_columns",
    mutation(
      "postgres-once-compared",
      "postgres",
      "A grant for a period does not ask what is done.",
      [
        [
          "postgres/operations/acquire.rs",
          '"{row}done_due IS NOT NULL',
          '"false AND {row}done_due IS NOT NULL',
        ],
      ],
    ),
  ),
  tested(
    "postgres",
    "a_mark_that_comes_while_an_acquisition_waits_is_seen",
    mutation(
      "postgres-once-snapshot",
      "postgres",
      "A grant for a period believes what its snapshot shows of what is done.",
      [
        [
          "postgres/operations/acquire.rs",
          'coalesce({}, false)", is_done("last.")',
          'coalesce({} AND false, false)", is_done("last.")',
        ],
      ],
    ),
  ),
  tested(
    "postgres",
    "a_release_of_a_lock_that_is_gone_stores_nothing",
    mutation(
      "postgres-once-lost",
      "postgres",
      "A release stores what is done although the lock was lost.",
      [
        [
          "postgres/operations/release_done.sql",
          "FROM freed WHERE is_live",
          "FROM (SELECT count(*) FROM freed) freed",
        ],
      ],
    ),
  ),
];

const sqlite = [
  mutation("sqlite-tolerance", "sqlite", "A lock counts as free as soon as its TTL is over.", [
    [
      "asking/granting.rs",
      "end.filter(|at| is_live(*at, now_ms, TIME_TOLERANCE_MS))",
      "end.filter(|at| is_live(*at, now_ms, 0))",
    ],
  ]),
  mutation("sqlite-expiry", "sqlite", "Release and extension ignore the expiry of the row.", [
    [
      "sqlite/operations/owned.rs",
      "if !is_live(expires_at_ms, now_ms, TIME_TOLERANCE_MS) {",
      "if !is_live(expires_at_ms, now_ms, TIME_TOLERANCE_MS * 1000) {",
    ],
  ]),
  mutation(
    "sqlite-keeps-id",
    "sqlite",
    "A lock that is taken over keeps the lock id of its last owner.",
    [["sqlite/operations/acquire_lock.sql", "  lock_id = excluded.lock_id,\n", ""]],
  ),
  mutation(
    "sqlite-release-counter",
    "sqlite",
    "A fence is a number, and a release deletes its counter.",
    [
      SQLITE_WITHOUT_TIME,
      [
        "sqlite/operations/owned.rs",
        "    store.has_freed(lock_key);",
        `    store
        .connection()
        .execute(
            "DELETE FROM syncguard_fence_counters WHERE fence_key = 'fence:' || ?1",
            [lock_key],
        )
        .map_err(from_sqlite)?;
    store.has_freed(lock_key);`,
      ],
    ],
  ),
  mutation(
    "sqlite-fence-uncounted",
    "sqlite",
    "A fence is a number, counted only the first time.",
    [
      SQLITE_WITHOUT_TIME,
      ["sqlite/operations/acquire_fence.sql", "DO UPDATE SET fence = excluded.fence", "DO NOTHING"],
    ],
  ),
  mutation(
    "sqlite-tells-nobody",
    "sqlite",
    "Other processes are not told of a lock whose row is gone.",
    [
      [
        "sqlite/operations/is_locked.rs",
        "!end.is_some_and(|at| is_live",
        "end.is_some_and(|at| is_live",
      ],
    ],
  ),
];

const together = [
  mutation("together-without-last", "sqlite", "Of several keys, the last one is not locked.", [
    [
      "sqlite/operations/acquire.rs",
      "for (lock, grant) in wanted.iter().zip(&grants) {",
      "for (lock, grant) in wanted.iter().zip(&grants).take(grants.len().max(2) - 1) {",
    ],
  ]),
  mutation(
    "together-in-part",
    "redis",
    "Several keys are granted though one of them is held: those that are free.",
    [
      [
        "redis/operations/acquire_all.lua",
        "    return { 0, place, outcome[2], outcome[3], first_id }",
        "    outcome = function() return { 1, 1, now + ttl } end",
      ],
    ],
  ),
  mutation("slot-too-many", "sqlite", "There is a slot more than was asked for.", [
    [
      "asking/granting.rs",
      "is_held: vec![false; usize::from(count)],",
      "is_held: vec![false; usize::from(count) + 1],",
    ],
  ]),
  mutation("slot-held", "sqlite", "A slot that is held counts as free.", [
    ["asking/granting.rs", "        *is_held = true;", "        *is_held = number != 1;"],
  ]),
  mutation(
    "slots-share-fence",
    "sqlite",
    "A fence is a number, and each slot counts from that of the first.",
    [
      SQLITE_WITHOUT_TIME,
      [
        "sqlite/operations/acquire.rs",
        "let names = [&wanted.lock_key, &wanted.fence_key];",
        'let names = [&wanted.lock_key, &match wanted.key.slot_number() { Some(_) => format!("{}1", wanted.fence_key.trim_end_matches(|one: char| one.is_ascii_digit())), None => wanted.fence_key.clone() }];',
      ],
    ],
  ),
  mutation("release-in-part", "sqlite", "Of several locks, a release frees all but the last.", [
    [
      "sqlite/operations/release.rs",
      "delete(store, &lock_key, lock_id)?;",
      "if lock_ids.len() == 1 || lock_ids.last() != Some(lock_id) { delete(store, &lock_key, lock_id)?; }",
    ],
  ]),
  mutation("extend-in-part", "sqlite", "Of several locks, an extension makes one end later.", [
    [
      "sqlite/operations/extend.rs",
      "for (lock_key, lock_id) in lock_keys.iter().zip(&extension.lock_ids) {",
      "for (lock_key, lock_id) in lock_keys.iter().zip(&extension.lock_ids).take(1) {",
    ],
  ]),
  mutation("undo-in-part", "redis", "Of several locks, one that was granted in vain is released.", [
    [
      "operation/mod.rs",
      "let release = Freeing::new(self.lock_ids.clone().into(), None);",
      "let release = Freeing::new([self.lock_ids[0].clone()].into(), None);",
    ],
  ]),
];

const firestore = [
  mutation(
    "firestore-tolerance",
    "firestore",
    "A lock counts as free as soon as its TTL is over.",
    [
      [
        "firestore/documents.rs",
        "is_live(self.expires_at_ms, now_ms, TIME_TOLERANCE_MS)",
        "is_live(self.expires_at_ms, now_ms, TIME_TOLERANCE_MS - TIME_TOLERANCE_MS)",
      ],
    ],
  ),
  mutation("firestore-transaction", "firestore", "A commit does not name its transaction.", [
    [
      "firestore/connection/client.rs",
      "transaction: transaction.to_vec(),",
      "transaction: transaction.iter().take(0).copied().collect(),",
    ],
  ]),
  mutation(
    "firestore-fence-uncounted",
    "firestore",
    "An acquisition gives a fence before it counts it.",
    [
      [
        "asking/granting.rs",
        "Fence::after(lock.counter, now_ms)",
        "Fence::after((lock.counter - 1).max(0), 0)",
      ],
    ],
  ),
  mutation(
    "firestore-expiry",
    "firestore",
    "Release and extension ignore the expiry of the document.",
    [
      [
        "firestore/operations/owned.rs",
        ".partition(|lock| lock.is_live(now_ms));",
        ".partition(|lock| lock.is_live(now_ms) || lock.expires_at_ms > 0);",
      ],
    ],
  ),
];

const shared = [
  mutation(
    "undo-wrong-lock",
    "redis",
    "A cancelled acquisition undoes another lock than its own.",
    [
      [
        "operation/mod.rs",
        "let (lock_ids, ttl) = (request.lock_ids(), request.ttl);",
        `let (mut lock_ids, ttl) = (request.lock_ids(), request.ttl);
        lock_ids[0] = LockId::generate().unwrap_or_else(|_| lock_ids[0].clone());`,
      ],
    ],
  ),
  mutation("undo-granted-lock", "sqlite", "A lock is undone that its caller was given.", [
    ["operation/mod.rs", "State::Answered => return,", "State::Answered => Lock::Granted,"],
  ]),
  mutation(
    "undo-too-early",
    "postgres",
    "An undo ends when it finds nothing, though the acquisition is on its way.",
    [
      [
        "background/undo.rs",
        "if ended == Some(End::Granted) || ended.is_some() && all_released {",
        "if ended == Some(End::Granted) || ended.is_some() || ended.is_none() || all_released {",
      ],
    ],
  ),
  mutation(
    "wake-without-trying",
    "redis",
    "A waiter that is woken does not try to take the lock.",
    [
      [
        "waiting/waiter.rs",
        `times = told => if turn.is_news(times) {
                    turn.may_be_free();
                    return PauseEnd::Freed;
                },`,
        `_ = told => {
                    sleep_until(until).await;
                    return end;
                }`,
      ],
    ],
  ),
  mutation(
    "wake-before-listening",
    "postgres",
    "What was released before the store tells of it is missed.",
    [
      [
        "waiting/listener.rs",
        "StoreMessage::Listening(name) => topics.listening(&name),",
        "StoreMessage::Listening(_) => {}",
      ],
    ],
  ),
];

export const mutations = [
  ...redis,
  ...cluster,
  ...postgres,
  ...sqlite,
  ...together,
  ...firestore,
  ...shared,
];

/** `text` with that edit. Its text must occur exactly once. */
export function edited(text, { file, find, replace }) {
  const parts = text.split(find);
  if (parts.length !== 2) {
    throw new Error(`${file}: the text of a mutation occurs ${parts.length - 1} times:\n${find}`);
  }
  return parts.join(replace);
}
