// Mutations of how one who waits for several things gathers them.

import { mutation, tested } from "./mutation.mjs";

const GATHERED = "waiting/waiter/gathered.rs";
const GATHERING = "waiting/waiter/gathering.rs";

/** What a test of the core shows, in simulated time. */
function shown(test, name, breaks, edits) {
  return tested("lib", test, mutation(name, "", breaks, edits));
}

export const gathering = [
  shown(
    "once_it_has_all_parts_one_extension_grants_them",
    "gather-without-extending",
    "What was gathered is granted before it is extended.",
    [
      [
        GATHERED,
        "let (asked, expires_at_ms) = self.extend(lock_ids, request.ttl).await.ok()??;",
        "drop(lock_ids); let (asked, expires_at_ms) = (clock::now(), self.taken.first()?.grant.expires_at_ms);",
      ],
    ],
  ),
  shown(
    "no_seed_breaks_a_promise",
    "gather-extends-in-part",
    "Of what was gathered, all but the first is granted without having been extended.",
    [
      [
        GATHERED,
        "..Extension::new(lock_ids, ttl)",
        "..Extension::new(lock_ids.into_iter().take(1).collect(), ttl)",
      ],
    ],
  ),
  shown(
    "whoever_gathers_takes_what_it_wants_in_one_order_and_a_gate_before_slots",
    "gather-in-any-order",
    "Each who gathers takes what it wants in an order of its own.",
    [
      [
        GATHERING,
        "let mut left = u32",
        `let mut claims = claims;
        claims.sort_by(|one, other| one.lock_id.as_str().cmp(other.lock_id.as_str()));
        let mut left = u32`,
      ],
    ],
  ),
  shown(
    "whoever_gathers_takes_what_it_wants_in_one_order_and_a_gate_before_slots",
    "gather-without-gate",
    "Who takes several slots of a key does not take its gate before.",
    [[GATHERING, "(same.len() > 1 || claims.len() == 1)", "(same.len() > 3 || claims.len() == 1)"]],
  ),
  shown(
    "others_lose_a_quarter_of_the_time_to_one_who_gathers_in_vain",
    "gather-beyond-window",
    "What was taken is kept after the window is over.",
    [[GATHERING, "lasts.saturating_sub(had_for);", "(20 * lasts).saturating_sub(had_for);"]],
  ),
  shown(
    "no_seed_breaks_a_promise",
    "gather-keeps-in-part",
    "Of what was gathered in vain, the first is given back, and the rest is kept.",
    [
      [
        GATHERED,
        "let release = Operation::Release(self.lock_ids().into());",
        `let ids: Batch<LockId> = self.lock_ids().into_iter().take(1).collect();
        let release = Operation::Release(ids.into());`,
      ],
    ],
  ),
];
