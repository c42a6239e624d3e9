/** What a holder does with its lock: extends it, releases it, says that its work is done. */

import { LockError } from "../native/errors.js";
import type { DisposalOptions } from "../values/arguments.js";
import type { HolderAccess, HowToRelease, Releasing } from "./internals.js";
import type { Lease } from "./lease.js";
import { failure, goneLock } from "../values/mutation.js";
import { reportReleaseError, type Reported } from "../watching/reports.js";
import { endWithin } from "../values/timers.js";
import { reported } from "./together.js";
import { UsersLeases } from "./users-leases.js";
import type {
  ExtendResult,
  LockOp,
  LocksOp,
  OnReleaseError,
  ReleaseResult,
} from "../values/types.js";

/** Extends a lock for its holder. */
export async function extendHeld(
  lease: Lease,
  access: HolderAccess,
  ttlMs: number,
  signal?: AbortSignal,
): Promise<ExtendResult> {
  if (lease.isLost()) return failure("expired");
  const endMs = lease.clock.elapsed() + ttlMs;
  const beforeMs = signal?.aborted ? undefined : lease.mayEnd(endMs);
  let result: ExtendResult;
  let gone: string | undefined;
  try {
    do {
      const { ids } = lease;
      result = await extendBy(access, lease, ttlMs, signal);
      gone = (result?.ok as unknown) === false ? goneLock(result, ids) : undefined;
      // That one was released by its id meanwhile, and so the others were not extended.
    } while (gone !== undefined && !lease.lockIds.includes(gone));
  } catch (error) {
    // Whatever else it was, the store may have carried it out.
    if (error instanceof LockError && error.code === "InvalidArgument") lease.refused(beforeMs);
    throw error;
  }
  if (!result?.ok) {
    lease.lostInStore(gone);
    return result;
  }
  lease.moved(endMs, ttlMs);
  // It was lost meanwhile, and whoever works under it has been told.
  if (lease.isLost()) return failure("expired");
  lease.show(result.expiresAtMs);
  return result;
}

/** Releases a lock for its holder. One that was lost, or is found gone, is not released, whatever the store has freed. */
export async function releaseHeld(
  lease: Lease,
  access: HolderAccess,
  signal?: AbortSignal,
): Promise<ReleaseResult> {
  const isTooSoon = lease.leftToHoldMs > 0;
  if (isTooSoon) {
    // What is on its way would make it last longer again.
    const settling = lease.settling();
    if (settling !== undefined) await settling;
  }
  lease.end();
  const wasLost = lease.isLost();
  const holdMs = isTooSoon && !wasLost ? lease.leftToHoldMs : 0;
  const how = holdMs > 0 ? { signal, holdMs } : { signal };
  const result = await releaseBy(access, lease, how);
  return wasLost ? failure("expired") : result;
}

/** The same of a lock under which nothing was done, however long it was to be held. */
export async function releaseUnused(lease: Lease, access: HolderAccess): Promise<ReleaseResult> {
  lease.end();
  const wasLost = lease.isLost();
  const result = await releaseBy(access, lease, {});
  return wasLost ? failure("expired") : result;
}

/**
 * Releases the lock under which something was done for its period, and stores in the same step that it is, unless a transaction of the
 * holder's was to do that. `undefined` if it is lost: then it is to be released otherwise, unless it may have been done before that.
 */
export function finishHeld(lease: Lease, access: HolderAccess): Promise<ReleaseResult> | undefined {
  lease.end();
  return lease.mayBeDone || !lease.isLost() ? finish(lease, access) : undefined;
}

async function finish(lease: Lease, access: HolderAccess): Promise<ReleaseResult> {
  // The transaction may have been rolled back: that it is done, it alone may say.
  if (lease.mayBeDone && !lease.isLost()) {
    const result = await releaseBy(access, lease, {});
    if (result.ok) return result;
  }
  // If the lock is gone, this succeeds only where the mark is there.
  return await releaseBy(access, lease, { due: lease.due });
}

/** Releases a lock whose end has begun, by what releases it now. No async function: it would cost each release a promise more. */
export function releaseBy(
  { backend, release, leases }: HolderAccess,
  lease: Lease,
  how: HowToRelease,
): Promise<ReleaseResult> {
  const by = backend.release === release ? leases : new UsersLeases(backend);
  return by.release(lease, how);
}

/** Extends a lock, by what extends it now. */
export function extendBy(
  { backend, extend, leases }: HolderAccess,
  lease: Lease,
  ttlMs: number,
  signal: AbortSignal | undefined,
): Promise<ExtendResult> {
  const by = backend.extend === extend ? leases : new UsersLeases(backend);
  return by.extend(lease, ttlMs, signal);
}

/** Releases a lock at the end of a block or of `lock()`. Never rejects. */
export async function disposeHeld(
  lease: Lease,
  access: HolderAccess,
  { onReleaseError, disposeTimeoutMs }: DisposalOptions,
): Promise<void> {
  const release = async (signal?: AbortSignal): Promise<void> => {
    try {
      await releaseHeld(lease, access, signal);
    } catch (error) {
      reportReleaseError(error, reported(lease, undefined), onReleaseError);
    }
  };
  if (disposeTimeoutMs === undefined) await release();
  else await endWithin(lease.clock, disposeTimeoutMs, release);
}

/** Releases a lock that its caller no longer waits for. Failures are reported. */
export function releaseInBackground(
  backend: Releasing,
  ids: LockOp | LocksOp,
  reported: Reported,
  onReleaseError: OnReleaseError | undefined,
): void {
  // Only backends of this package have granted several.
  const release = async (): Promise<unknown> => await backend.release(ids as LockOp);
  release().catch((error: unknown) => reportReleaseError(error, reported, onReleaseError));
}
