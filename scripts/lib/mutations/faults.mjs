// Mutations of what becomes of locks when Sentinels, proxies, addresses and machines are not what they seem.

import { mutation, tested } from "./mutation.mjs";

export const faults = [
  tested(
    "redis",
    "where_epochs_are_unknown_all_go_to_what_most_name",
    mutation(
      "sentinel-minority",
      "redis",
      "Of two primaries, the one that fewer Sentinels name is taken.",
      [
        [
          "redis/connection/sentinel/finding.rs",
          "(self.named.epoch, self.votes, &self.named.address)",
          "(self.named.epoch, usize::MAX - self.votes, &self.named.address)",
        ],
      ],
    ),
  ),
  tested(
    "redis",
    "a_later_epoch_of_a_dead_server_keeps_nobody_for_long_from_what_most_name",
    mutation(
      "sentinel-later-epoch",
      "redis",
      "One Sentinel with a later epoch, which names a dead server, outweighs all others.",
      [
        [
          "redis/connection/sentinel/set.rs",
          "latest).elapsed() >= AGREEMENT",
          "latest).elapsed() >= 1000 * AGREEMENT",
        ],
      ],
    ),
  ),
  ...[
    ["redis", "a_server_that_comes_back_without_what_it_had_is_asked_after_all_that_is_held"],
    ["postgres", "an_empty_server_behind_the_address_is_asked_after_all_that_is_held"],
  ].map(([store, test]) =>
    tested(
      store,
      test,
      mutation(
        `moved-${store}`,
        store,
        "After a reconnection, holders go on until their next heartbeats.",
        [
          [
            "background/work.rs",
            "work.heartbeats.hurry();\n                work.looks.ask();",
            "let _ = work;",
          ],
        ],
      ),
    ),
  ),
  tested(
    "redis",
    "an_error_that_is_not_the_servers_leaves_no_lock",
    mutation(
      "proxy-error",
      "redis",
      "Any error in place of an answer says that nothing was done.",
      [
        [
          "redis/error.rs",
          "return (kind, message, sent && !is_refusal);",
          "return (kind, message, sent && is_refusal);",
        ],
      ],
    ),
  ),
  tested(
    "sqlite",
    "a_suspended_machine_holds_no_lock_past_its_end",
    mutation("suspended-machine", "sqlite", "The time of a suspended machine does not count.", [
      ["clock.rs", "LONGEST_MS.fetch_max(ms, SeqCst).max(ms)", "LONGEST_MS.load(SeqCst).min(ms)"],
    ]),
  ),
];
