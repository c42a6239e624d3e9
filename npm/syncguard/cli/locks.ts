/** Locks as the command line shows them. */

import { parted } from "../native/slots.js";
import { rawData } from "../watching/diagnostics.js";
import { TIME_TOLERANCE_MS } from "../values/defaults.js";
import type { FencingCapabilities, LockInfo } from "../values/types.js";
import type { RawRecord } from "../native/outcome.js";
import { hashKey } from "../values/values.js";
import { formatDuration } from "./duration.js";
import type { Output } from "./output.js";

/** A lock in JSON. */
export type ShownLock = {
  key: string;
  /** The number of the slot, of one. */
  slot?: number;
  owner: string | null;
  fence: string;
  acquiredAtMs: number;
  expiresAtMs: number;
  /** On the store's clock; negative in the second for which a lock counts as held after its end. */
  expiresInMs: number;
  keyHash: string;
  lockIdHash: string;
  /** Only when it was asked for: whoever knows it can release the lock. */
  lockId?: string;
};

/** What a look-up of a backend of this package gave. */
export function ofLookup(info: LockInfo<FencingCapabilities>): RawRecord {
  const { fence, acquiredAtMs, expiresAtMs } = info;
  const unknown = { key: "", lockId: "", readAtMs: Date.now() };
  return { ...unknown, ...rawData(info), fence, acquiredAtMs, expiresAtMs };
}

export function shownLock(lock: RawRecord, showsLockId: boolean): ShownLock {
  const { lockId, owner, fence, acquiredAtMs, expiresAtMs, readAtMs } = lock;
  const { key, slot } = parted(lock.key);
  const shown: ShownLock = {
    key,
    ...(slot === undefined ? {} : { slot }),
    owner: owner ?? null,
    fence,
    acquiredAtMs,
    expiresAtMs,
    expiresInMs: expiresAtMs - readAtMs,
    keyHash: hashKey(key),
    lockIdHash: hashKey(lockId),
  };
  if (showsLockId) shown.lockId = lockId;
  return shown;
}

/** The key for people. */
export function keyOf({ key, slot }: ShownLock): string {
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
