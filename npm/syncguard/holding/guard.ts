/** What a guard does when it does not find a lock. */

import { LockError } from "../native/errors.js";
import type { DirectAccess } from "./internals.js";
import type { Lease } from "./lease.js";

/**
 * Refuses what was asked of a lock that is known to be lost.
 *
 * @throws LockError `LockLost`
 */
export function checkNotLost(lease: Lease): void {
  if (lease.isLost() && lease.loss !== undefined) throw lease.loss;
}

/**
 * The error for a transaction in which the lock was not found. The store is asked itself: if it has the lock, the transaction looks
 * elsewhere, or the error is `otherwise`. Else the lock is lost, and whoever works under it hears of that.
 */
export async function notFound(
  lease: Lease,
  direct: DirectAccess,
  cause?: unknown,
  otherwise?: LockError,
): Promise<LockError> {
  let gone: string | undefined;
  try {
    const { keys } = lease;
    for (const [number, lockId] of lease.lockIds.entries()) {
      const key = keys[number] ?? lease.key;
      const found = await direct(key, undefined, (store) => store.lookupByLockId(lockId));
      if (found === null) {
        gone = lockId;
        break;
      }
    }
    if (gone === undefined) return otherwise ?? elsewhere(cause);
  } catch {
    if (otherwise !== undefined) return otherwise;
    // The transaction has the last word. Which of several it was, nobody knows.
  }
  const message = "the lock was lost: it was gone when it was to be guarded";
  return lease.lostBefore(message, cause, gone);
}

function elsewhere(cause: unknown): LockError {
  const message =
    "tx does not see the lock, which is held: it is a transaction of another database, or has begun before the lock was granted";
  return new LockError("InvalidArgument", message, cause === undefined ? {} : { cause });
}
