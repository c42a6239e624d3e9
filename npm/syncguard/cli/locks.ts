/** Locks as the command line shows them to people. */

import { TIME_TOLERANCE_MS } from "../values/defaults.js";
import type { ShownLock } from "../inspection/locks.js";
import { formatDuration } from "./duration.js";
import type { Output } from "./output.js";

/** The key for people. */
export function keyOf({ key, slot, gate, mode }: ShownLock): string {
  if (mode !== undefined) return `${key}, ${mode}`;
  if (gate === true) return `${key}, gate`;
  return slot === undefined ? key : `${key}, slot ${slot}`;
}

/** A table of locks for people. */
export function tableOf(locks: readonly ShownLock[], showsLockId: boolean, out: Output): string {
  const head = ["KEY", "FENCE", "ACQUIRED", "EXPIRES IN", "OWNER", "LOCK ID HASH"];
  if (showsLockId) head.push("LOCK ID");
  const rows = locks.map((lock) => [
    keyOf(lock),
    lock.fence,
    age(lock),
    formatDuration(lock.expiresInMs),
    lock.owner ?? "-",
    lock.lockIdHash,
    ...(lock.lockId === undefined ? [] : [lock.lockId]),
  ]);
  return out.table(head, rows);
}

/** When a lock ends, for people. */
export function expiry(expiresInMs: number): string {
  if (expiresInMs > 0) return `in ${formatDuration(expiresInMs)}`;
  return `${formatDuration(-expiresInMs)} ago; counts as held for ${formatDuration(TIME_TOLERANCE_MS)} after it`;
}

/** How long ago it was acquired, for people. */
export function age(lock: ShownLock): string {
  const nowMs = lock.expiresAtMs - lock.expiresInMs;
  return `${formatDuration(Math.max(0, nowMs - lock.acquiredAtMs))} ago`;
}

/** A time for people and for programs. */
export function time(ms: number): string {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? `${ms} ms` : date.toISOString();
}
