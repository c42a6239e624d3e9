/** Finds the leases of lock ids. The ids may name all locks of a lease, or only a part of them. */

import { constants } from "../native/constants.js";
import { addContext } from "../native/errors.js";
import { storedKey } from "../values/slots.js";
import { invalid } from "../options/validation.js";
import type { Grants } from "../holding/grants.js";
import type { Lease } from "../holding/lease.js";
import { monitoredLease } from "../holding/monitored.js";
import type { LockOp, LocksOp } from "../values/types.js";
import { validateLockId } from "../values/values.js";
import type { Waiters } from "../waiting/waiters.js";

/** The locks of one lease that are named. */
export type Part = {
  readonly lease: Lease;
  readonly lockIds: string[];
  /** Whether this backend has granted the lease. */
  readonly isOwn: boolean;
};

/** Sorts lock ids by their leases. Ids of which nothing is known are left out. */
export function partsOf(lockIds: readonly string[], grants: Grants): Part[] {
  const parts: Part[] = [];
  for (const lockId of lockIds) {
    const own = grants.get(lockId);
    const lease = own ?? monitoredLease(lockId);
    if (lease === undefined) continue;
    const known = parts.find((part) => part.lease === lease);
    if (known !== undefined) known.lockIds.push(lockId);
    else parts.push({ lease, lockIds: [lockId], isOwn: own !== undefined });
  }
  return parts;
}

/** How long the locks can last, if that is known for all of them. */
export function lastsOf(parts: readonly Part[], lockIds: readonly string[]): number | undefined {
  let [known, lastsMs] = [0, 0];
  for (const part of parts) {
    if (!part.isOwn) continue;
    known += part.lockIds.length;
    lastsMs = Math.max(lastsMs, part.lease.lastsMs);
  }
  return known === lockIds.length ? Math.ceil(lastsMs) : undefined;
}

/** Those keys of the parts for which others of this process wait, as the store names them. */
export function waitedFor(parts: readonly Part[], waiters: Waiters): string[] | undefined {
  if (waiters.areNone) return undefined;
  return parts.flatMap(({ lease, lockIds, isOwn }) => {
    if (!isOwn) return [];
    if (lease.locks === undefined) return waiters.has(lease.key) ? [lease.key] : [];
    const wanted = lease.locks.filter(
      ({ lockId, key }) => lockIds.includes(lockId) && waiters.has(key),
    );
    return wanted.map(storedKey);
  });
}

/** Notes that the locks of a part are about to be released. Gives whether they are all that is left of their lease. */
export function leave({ lease, lockIds, isOwn }: Part, grants: Grants): boolean {
  if (isOwn) for (const lockId of lockIds) grants.remove(lockId);
  return lease.leave(lockIds, isOwn);
}

/** Notes in a lease what a release has found of its part. */
export function noteReleased(
  { lease, lockIds, isOwn }: Part,
  gone: readonly string[],
  isWhole: boolean,
): void {
  const goneId = lockIds.find((lockId) => gone.includes(lockId));
  if (goneId === undefined) {
    if (isWhole) lease.freed(lockIds);
    return;
  }
  if (!isOwn) return;
  if (isWhole) lease.gone(goneId);
  // The lease goes on with the others, but whoever works under it believed that it had this one, too.
  else lease.lose("the lock was lost: it was gone when it was released", undefined, goneId);
}

/**
 * Reads and checks lock ids.
 *
 * @throws LockError `InvalidArgument`
 */
export function readIds(ids: Partial<LockOp & LocksOp>): readonly string[] {
  const { lockId, lockIds } = ids;
  if (lockIds === undefined || lockIds === null) {
    validateLockId(lockId as string);
    return [lockId as string];
  }
  if (lockId !== undefined) throw invalid("lockId cannot be given beside lockIds");
  if (!Array.isArray(lockIds) || lockIds.length === 0) {
    throw invalid("lockIds must be an array that is not empty");
  }
  for (const id of lockIds as readonly string[]) validateLockId(id);
  if (lockIds.length > constants.maxClaims) {
    throw invalid(`lockIds must not name more than ${constants.maxClaims} locks`);
  }
  if (new Set(lockIds).size < lockIds.length) {
    throw invalid("lockIds must not contain a lock id twice");
  }
  return [...(lockIds as readonly string[])];
}

/** Adds to an error the lock ids that were given, and their keys as far as they are known. */
export function addIds(
  error: unknown,
  { lockId, lockIds }: Partial<LockOp & LocksOp>,
  parts: readonly Part[],
): unknown {
  const keyOf = (id: string | undefined): string | undefined => {
    const lease = parts.find((part) => part.lockIds.includes(id as string))?.lease;
    return lease?.locks?.find((lock) => lock.lockId === id)?.key ?? lease?.key;
  };
  if (!Array.isArray(lockIds)) return addContext(error, keyOf(lockId), lockId);
  const all = lockIds.filter((id) => typeof id === "string");
  const keys = all.map(keyOf).filter((key) => key !== undefined);
  const known = keys.length === all.length ? { keys } : {};
  return addContext(error, keyOf(all[0]), all[0], { ...known, lockIds: all });
}
