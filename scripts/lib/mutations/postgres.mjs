// Mutations of PostgreSQL.

import { mutation, tested } from "./mutation.mjs";

const PG_TIME = "least({now_ms}, 90000000000000)";

export const postgres = [
  mutation("postgres-tolerance", "postgres", "A lock counts as free as soon as its TTL is over.", [
    ["postgres/operations/acquire.sql", "WHEN {is_live}", "WHEN expires_at_ms > {now_ms}"],
    [
      "postgres/operations/acquire_all.sql",
      "SELECT {live_after_ms} AS live_after_ms",
      "SELECT {now_ms} AS live_after_ms",
    ],
    [
      "postgres/operations/acquire_all.sql",
      "(last_end_ms <= now_ms - {tolerance_ms})",
      "(last_end_ms <= now_ms)",
    ],
    [
      "postgres/operations/acquire_all.sql",
      "lock.expires_at_ms <= excluded.acquired_at_ms - {tolerance_ms}",
      "lock.expires_at_ms <= excluded.acquired_at_ms",
    ],
  ]),
  mutation("postgres-expiry", "postgres", "An acquisition ignores the expiry of the row.", [
    ["postgres/operations/acquire.sql", "WHEN {is_live}", "WHEN expires_at_ms IS NOT NULL"],
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
        let sql = &crate::postgres::held::write_into(sql);
        let time = "(timestamptz 'epoch' + $6::bigint * interval '1 ms')";
        let sql = &sql.replace("clock_timestamp()", time);`,
      ],
      ["postgres/operations/acquire.rs", "5, tables, columns", "6, tables, columns"],
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
        "expires_at_ms > now_ms - {tolerance_ms} AS is_live",
        "expires_at_ms > now_ms - {tolerance_ms} * 1000 AS is_live",
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
      ["postgres/operations/guard_done.sql", "WHERE {is_live}", "WHERE expires_at_ms IS NOT NULL"],
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
