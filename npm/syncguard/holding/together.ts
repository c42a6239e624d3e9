/** Locks that were granted together, or a slot: which of them are left, and what a lease is called where users are told of it. */

import type { LockErrorContext } from "../native/errors.js";
import type { AcquiredLock } from "../native/outcome.js";
import type { Reported } from "../watching/reports.js";

/** What was granted together. */
export class Together {
  private remaining: readonly AcquiredLock[];
  private freed: Set<string> | undefined = undefined;

  constructor(granted: readonly AcquiredLock[]) {
    this.remaining = granted;
  }

  /** Those that nobody has released by their ids. The last one stays. */
  get left(): readonly AcquiredLock[] {
    return this.remaining;
  }

  /** These are about to be released by their ids; gives whether that is all that is left. */
  leave(lockIds: readonly string[]): boolean {
    const rest = this.remaining.filter((lock) => !lockIds.includes(lock.lockId));
    if (rest.length === 0) return true;
    this.remaining = rest;
    return false;
  }

  /** Releases have freed these, or may have done so; gives whether all that is left is free. */
  free(lockIds: readonly string[]): boolean {
    if (lockIds.length >= this.remaining.length) return true;
    const freed = (this.freed ??= new Set());
    for (const lockId of lockIds) freed.add(lockId);
    return this.remaining.every((lock) => freed.has(lock.lockId));
  }
}

/** A lease, as far as it has names. */
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
 * @param lockId - of several locks, the one that is meant; without it, the first that was not released by its id
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

/** The same for errors. */
export function contextOf(lease: Named, lockId: string | undefined): LockErrorContext {
  const { locks, ...names } = reported(lease, lockId);
  if (locks === undefined) return names;
  return {
    ...names,
    keys: locks.map(({ key }) => key),
    lockIds: locks.map((lock) => lock.lockId),
  };
}
