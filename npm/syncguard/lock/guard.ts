/** What a guard does when it does not find a lock. */

import { LockError } from "../native/errors.js";
import { settle } from "../native/outcome.js";
import type { Store } from "../native/store.js";
import { invalid } from "../options/validation.js";
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
 * elsewhere. Else the lock is lost, and whoever works under it hears of that.
 */
export async function notFound(lease: Lease, store: Store, cause?: unknown): Promise<LockError> {
  const lockIds = lease.lockId.split(",");
  let which: number | undefined;
  try {
    for (const [number, lockId] of lockIds.entries()) {
      if (settle(await store.lookupByLockId(lockId)) === null) {
        which = number;
        break;
      }
    }
    if (which === undefined) return elsewhere(cause);
  } catch {
    // The transaction has the last word. Which of several it was, nobody knows.
  }
  const message = "the lock was lost: it was gone when it was to be guarded";
  lease.lose(message, cause, lease.isSet ? which : undefined);
  return lease.loss ?? new LockError("LockLost", message, { ...lease.named(which), cause });
}

function elsewhere(cause: unknown): LockError {
  const error = invalid(
    "tx does not see the lock, which is held: it is a transaction of another database, or has begun before the lock was granted",
  );
  return cause === undefined ? error : new LockError(error.code, error.message, { cause });
}
