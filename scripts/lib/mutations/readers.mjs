// Mutations of readers, of the groups that they share, and of the gates that keep them out.

import { mutation, tested } from "./mutation.mjs";

export const readers = [
  mutation(
    "readers-group-stays",
    "redis",
    "The last reader that leaves does not take its group with it.",
    [
      [
        "redis/operations/parts/leave.lua",
        "    group.set(last)\n  else\n    call('DEL', lock_key)\n",
        "    group.set(last)\n",
      ],
    ],
  ),
  mutation(
    "readers-revived",
    "redis",
    "A heartbeat takes whatever is on the key for the group of its reader, which was freed by force.",
    [
      [
        "redis/operations/parts/group.lua",
        `group.fence == string.match(stored, '"fence":"(%d+)"') and group`,
        "group",
      ],
    ],
  ),
  mutation(
    "readers-group-end",
    "redis-cluster",
    "A group ends with its first reader, however long others stay.",
    [["redis/operations/parts/raise.lua", "if ends > group.ends then", "if false then"]],
  ),
  mutation("readers-join-ended", "postgres", "A reader joins a group that has ended.", [
    [
      "postgres/operations/acquire_all.sql",
      `claims."group"
{shared}        AND (expires_at_ms > (SELECT live_after_ms FROM start)) IS TRUE
`,
      'claims."group"\n',
    ],
    [
      "postgres/operations/acquire_all.sql",
      "{shared}    AND (first_end_ms > now_ms - {tolerance_ms}) IS NOT FALSE\n",
      "",
    ],
  ]),
  // Runs do not show it: others join all the time, and that makes the group end later, too.
  tested(
    "postgres",
    "heartbeats_of_many_readers_run_in_groups",
    mutation(
      "readers-group-unraised",
      "postgres",
      "A heartbeat does not make the group end later.",
      [
        [
          "postgres/operations/extend.sql",
          "{shared}    expires_at_ms = greatest(lock.expires_at_ms, last_end_ms),\n",
          "",
        ],
      ],
    ),
  ),
  mutation("readers-gate-forever", "postgres", "A gate keeps readers out after its end.", [
    [
      "postgres/operations/acquire_all.sql",
      "key = claims.gate AND (expires_at_ms > (SELECT live_after_ms FROM start)) IS NOT FALSE",
      "key = claims.gate",
    ],
  ]),
  mutation("readers-gate-kept", "sqlite", "Whoever got in behind its gate does not give it back.", [
    ["waiting/waiter/gathered.rs", "self.taken = gates;", "std::mem::forget(gates);"],
  ]),
  mutation("readers-beside-writer", "sqlite", "A writer gets a key that readers have.", [
    [
      "sqlite/operations/acquire.rs",
      "true => group::readers_end(connection, &wanted.lock_key, now_ms).map_err(from_sqlite)?,",
      "true => None,",
    ],
  ]),
  mutation(
    "readers-revived-alone",
    "sqlite",
    "A heartbeat brings back the lock of a reader whose group was freed by force.",
    [
      [
        "sqlite/operations/group.rs",
        "Ok(row.is_some_and(|row| row.is_group(lock_key) && row.fence == fence))",
        "Ok(row.is_none_or(|row| row.is_group(lock_key) && row.fence == fence))",
      ],
    ],
  ),
  mutation("readers-join-longer", "firestore", "A reader that joins a group leaves its end.", [
    [
      "firestore/operations/group.rs",
      "Some(joined) if joined.expires_at_ms >= grant.expires_at_ms =>",
      "Some(joined) if joined.expires_at_ms > 0 =>",
    ],
  ]),
];
