/** Finds out why a guard does not see a lock: the lock is lost, or the transaction looks elsewhere. */

import { LockError } from "../native/errors.js";
import type { DirectAccess } from "./internals.js";
import type { Lease } from "./lease.js";

/**
 * Throws the loss of a lock that is known to be lost.
 *
 * @throws LockError `LockLost`
 */
export function checkNotLost(lease: Lease): void {
  if (lease.isLost() && lease.loss !== undefined) throw lease.loss;
}

/**
 * The error for a transaction that did not find the lock. This asks the store itself. If the store has the lock, the error is
 * `otherwise` if that is given, and says that the transaction looks elsewhere if not. If the store does not have the lock, the lock is lost,
 * and whoever works under it hears of that.
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
    // The store could not be asked, so the word of the transaction counts. Nobody knows which of several locks is gone.
  }
  const message = "the lock was lost: it was gone when it was to be guarded";
  return lease.lostBefore(message, cause, gone);
}

function elsewhere(cause: unknown): LockError {
  const message =
    "tx does not see the lock, which is held: it is a transaction of another database, or has begun before the lock was granted";
  return new LockError("InvalidArgument", message, cause === undefined ? {} : { cause });
}
