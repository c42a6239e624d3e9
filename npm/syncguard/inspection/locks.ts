/** Locks as the command line and the dashboard show them. */

import { parted } from "../values/slots.js";
import type { RawRecord } from "../native/outcome.js";
import { rawData } from "../watching/diagnostics.js";
import type { FencingCapabilities, LockInfo } from "../values/types.js";
import { hashKey } from "../values/values.js";

/** A lock in JSON. */
export type ShownLock = {
  key: string;
  /** The number of the slot, of one. */
  slot?: number;
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
    ...(slot === undefined ? {} : { slot }),
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
