/** The states of a held lock are the same in Rust and in TypeScript. */

import { expect, test } from "vitest";
import { commentTables } from "../support/comment-tables";

test("both tables have the same states, events and transitions", () => {
  const [rust] = commentTables("crates/syncguard/src/holding/lease_state.rs");
  const [typescript] = commentTables("npm/syncguard/holding/lease-state.ts");
  expect(rust?.head[0]).toBe("state");
  expect(rust?.rows.map(([state]) => state)).toEqual([
    "held",
    "lost",
    "releasing",
    "released",
    "gone",
  ]);
  expect(typescript).toEqual(rust);
});
