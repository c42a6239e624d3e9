/** Locks that extend themselves and whose handles were collected as garbage, without a release. */

import type { Holding } from "./holding.js";
import { hashKey } from "./values.js";

/** Nobody is left who could release these. */
const collected = new FinalizationRegistry<Holding>((holding) => {
  holding.forget();
});

/**
 * What every handle of the lock has to refer to, and nothing else may: the lock counts as forgotten once it was collected. The
 * end of the holding must be told to {@link isRemembered}.
 */
export function markOf(holding: Holding): object {
  const mark = {};
  collected.register(mark, holding, holding);
  return mark;
}

/** The lock was released or lost: nobody needs its handles any more. */
export function isRemembered(holding: Holding): void {
  collected.unregister(holding);
}

let hasWarned = false;

/** Warns once: the mistake is in the program, and each of its locks would tell of the same. */
export function warnOfForgotten(key: string): void {
  if (hasWarned) return;
  hasWarned = true;
  process.emitWarning(
    `a lock with autoExtend was not released, and its handle was garbage-collected: nobody extends it any more, and it ends with its TTL (key hash ${hashKey(key)})`,
    {
      type: "SyncGuardWarning",
      code: "SYNCGUARD_FORGOTTEN_LOCK",
      detail:
        "Keep the handle for as long as you need the lock, and release it in finally; or use lock(fn).",
    },
  );
}
