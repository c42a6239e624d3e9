/** What is stored as done. */

import { isOfKind, storedDue } from "../values/due.js";
import type { SyncGuardBackend } from "../values/types.js";
import { direct } from "./direct.js";

/** For which period something was done last, and when. */
export type Mark = { readonly due: string; readonly doneAtMs: number };

/** What is stored of a key. Then `due` is stored in its place; with "", nothing. */
export async function readMark(
  backend: SyncGuardBackend,
  key: string,
  due?: string,
): Promise<Mark | null> {
  const run = direct(backend);
  const { text } = await run(key, undefined, (store) => store.mark(key, due));
  return JSON.parse(text) as Mark | null;
}

/**
 * Whether `due` is a number where text is stored, or text in place of a number. Between the two there is no order: once() refuses one
 * where the other is stored, so every instance would fail from then on.
 */
export function isOtherKind(before: Mark | null, due: string): boolean {
  return before !== null && !isOfKind(storedDue(before.due), storedDue(due));
}
