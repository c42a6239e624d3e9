// Mutations of SQLite.

import { mutation, SQLITE_WITHOUT_TIME } from "./mutation.mjs";

export const sqlite = [
  mutation("sqlite-tolerance", "sqlite", "A lock counts as free as soon as its TTL is over.", [
    [
      "asking/granting.rs",
      "end.filter(|at| is_held(*at, now_ms))",
      "end.filter(|at| *at > now_ms)",
    ],
  ]),
  mutation("sqlite-expiry", "sqlite", "Release and extension ignore the expiry of the row.", [
    [
      "sqlite/operations/owned.rs",
      "if !is_held(expires_at_ms, now_ms) {",
      "if !is_held(expires_at_ms, now_ms / 1000) {",
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
        "!end.is_some_and(|at| is_held",
        "end.is_some_and(|at| is_held",
      ],
    ],
  ),
];
