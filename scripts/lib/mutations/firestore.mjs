// Mutations of Firestore.

import { mutation } from "./mutation.mjs";

export const firestore = [
  mutation(
    "firestore-tolerance",
    "firestore",
    "A lock counts as free as soon as its TTL is over.",
    [
      [
        "firestore/documents.rs",
        "pub fn is_live(&self, now_ms: i64) -> bool {\n        is_held(self.expires_at_ms, now_ms)",
        "pub fn is_live(&self, now_ms: i64) -> bool {\n        self.expires_at_ms > now_ms",
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
