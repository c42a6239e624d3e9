/** What becomes of a lock, from one look to the next. */

import type { ShownLock } from "../inspection/locks.js";

/** What has become of the lock, from one look to the next. */
export type Change = {
  event: "free" | "held" | "acquired" | "extended" | "released" | "expired";
  lock?: ShownLock;
};

/** What has happened between two looks. */
export function changes(
  before: ShownLock | undefined,
  now: ShownLock | undefined,
  isFirst: boolean,
): Change[] {
  if (isFirst) return [now === undefined ? { event: "free" } : { event: "held", lock: now }];
  if (before === undefined) return now === undefined ? [] : [{ event: "acquired", lock: now }];
  // All who ever share a key have one lock id there, and a fence of their own each time that the first of them comes.
  if (now?.lockIdHash === before.lockIdHash && now.fence === before.fence) {
    return now.expiresAtMs === before.expiresAtMs ? [] : [{ event: "extended", lock: now }];
  }
  // The store's clock is not known without a lock; ours stands in, and is good enough for a label.
  const nowMs = now?.acquiredAtMs ?? Date.now();
  const ended: Change = {
    event: nowMs < before.expiresAtMs ? "released" : "expired",
    lock: before,
  };
  return now === undefined ? [ended] : [ended, { event: "acquired", lock: now }];
}
