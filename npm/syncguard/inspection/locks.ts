/** Locks as the command line and the dashboard show them. */

import { GATE, parted } from "../values/slots.js";
import type { RawRecord } from "../native/outcome.js";
import { rawData } from "../watching/diagnostics.js";
import type { FencingCapabilities, LockInfo } from "../values/types.js";
import { hashKey } from "../values/values.js";

/** A lock in JSON. */
export type ShownLock = {
  key: string;
  /** The number of the slot, of one. */
  slot?: number;
  /** Of the gate of the key, which is no slot. */
  gate?: true;
  /** Of one that several share. */
  mode?: "shared";
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
    ...partOf(slot),
    ...(lock.isShared === true && { mode: "shared" as const }),
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

/** What it is of its key, if it is not the lock on the key itself. */
function partOf(slot: number | undefined): Pick<ShownLock, "slot" | "gate"> {
  if (slot === GATE) return { gate: true };
  return slot === undefined ? {} : { slot };
}
