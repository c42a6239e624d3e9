/** Knows which of the locks that were granted together are left, and names a lease where users are told of it. */

import type { LockErrorContext } from "../native/errors.js";
import type { AcquiredLock } from "../native/outcome.js";
import type { Reported } from "../watching/reports.js";

/** Several locks of one grant, or one slot. */
export class Together {
  private remaining: readonly AcquiredLock[];
  private freed: Set<string> | undefined = undefined;

  constructor(granted: readonly AcquiredLock[]) {
    this.remaining = granted;
  }

  /** The locks without those that somebody has released by their ids. When none would be left, the last ones stay. */
  get left(): readonly AcquiredLock[] {
    return this.remaining;
  }

  /** Takes out locks that are about to be released by their ids. If no others are left, they stay, and this gives true. */
  leave(lockIds: readonly string[]): boolean {
    const rest = this.remaining.filter((lock) => !lockIds.includes(lock.lockId));
    if (rest.length === 0) return true;
    this.remaining = rest;
    return false;
  }

  /** Notes locks that a release has freed, or may have freed. Gives whether all that is left is free. */
  free(lockIds: readonly string[]): boolean {
    if (lockIds.length >= this.remaining.length) return true;
    const freed = (this.freed ??= new Set());
    for (const lockId of lockIds) freed.add(lockId);
    return this.remaining.every((lock) => freed.has(lock.lockId));
  }
}

/** The names of a lease. */
type Named = {
  /** The key under which users know it. */
  readonly knownKey: string;
  readonly lockId: string;
  readonly isSet: boolean;
  readonly locks: readonly AcquiredLock[] | undefined;
  readonly left: readonly AcquiredLock[] | undefined;
};

/**
 * Names a lease for users' functions.
 *
 * @param lockId - which one of several locks is meant. Without it, that is the first one that is left
 */
export function reported(lease: Named, lockId: string | undefined): Reported {
  const { isSet, locks, left } = lease;
  if (!isSet || locks === undefined) return { key: lease.knownKey, lockId: lease.lockId };
  const meant = locks.find((lock) => lock.lockId === lockId) ?? left?.[0];
  return {
    key: meant?.key ?? lease.knownKey,
    lockId: meant?.lockId ?? lease.lockId,
    locks: locks.map((lock) => ({ key: lock.key, lockId: lock.lockId })),
  };
}

/** Names a lease for the context of an error. */
export function contextOf(lease: Named, lockId: string | undefined): LockErrorContext {
  const { locks, ...names } = reported(lease, lockId);
  if (locks === undefined) return names;
  return {
    ...names,
    keys: locks.map(({ key }) => key),
    lockIds: locks.map((lock) => lock.lockId),
  };
}
