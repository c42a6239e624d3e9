/** What the page can change: it force-releases a lock, and marks a period as done or not done. */

import { observer } from "../watching/observer.js";
import { direct } from "../inspection/direct.js";
import { isOtherKind, type Mark, readMark } from "../inspection/marks.js";
import { invalid } from "../options/validation.js";
import { checkKey } from "../values/arguments.js";
import { readDue } from "../values/due.js";
import type { Looked } from "./store.js";

/** What came of it, in words for whoever has asked. */
export type Done = { readonly ok: boolean; readonly message: string; readonly done?: Mark | null };

/** Releases the very lock that was shown: whoever has the key by now keeps it. */
export async function forceRelease(store: Looked, hash: string, by: string): Promise<Done> {
  const shown = store.shown.get(hash);
  if (shown === undefined) {
    return { ok: false, message: "this lock was not shown lately: look again" };
  }
  const { key, lockId } = shown;
  const { stream, clock, grants } = store.internals;
  const release = () =>
    direct(store.backend)(key, undefined, (addon) =>
      addon.release([lockId], undefined, undefined, [key]),
    );
  const released = await observer(stream, clock, by)("forceRelease", shown, release, (result) =>
    result === true ? { result: "ok" } : { result: "fail", reason: "not-found" },
  );
  if (released !== true) return { ok: false, message: "the lock was gone before" };
  // A holder on this backend is told at once; others find out when they extend the lock.
  grants?.get(lockId)?.lostInStore(lockId);
  return { ok: true, message: "the lock is released" };
}

/** Stores that `due` is done; without it, that no period is. */
export async function mark(
  { backend, internals: { stream, clock } }: Looked,
  key: string,
  due: string | undefined,
  by: string,
): Promise<Done> {
  checkKey(key);
  const period = due === undefined ? "" : readDue(due);
  if (due !== undefined && isOtherKind(await readMark(backend, key), period)) {
    throw invalid("due must be a number where numbers are stored, and text where text is");
  }
  const store = () => readMark(backend, key, period);
  await observer(stream, clock, by)("mark", { key }, store, () => ({ result: "ok" }));
  const done = await readMark(backend, key);
  return { ok: true, message: done === null ? "no period is done" : "the period is done", done };
}
