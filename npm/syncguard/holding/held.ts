/** Extends and releases a lock for its holder, and says that the holder's work is done. */

import { LockError } from "../native/errors.js";
import type { DisposalOptions } from "../values/arguments.js";
import type { HolderAccess, HowToRelease, Releasing } from "./internals.js";
import type { Lease } from "./lease.js";
import { failure, goneLock } from "../values/mutation.js";
import { reportReleaseError } from "../watching/reports.js";
import { endWithin } from "../values/timers.js";
import { reported } from "./together.js";
import { UsersLeases } from "./users-leases.js";
import type { ExtendResult, OnReleaseError, ReleaseResult } from "../values/types.js";

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
      // If somebody has released that lock by its id meanwhile, nothing was extended. Ask for the others.
    } while (gone !== undefined && !lease.lockIds.includes(gone));
  } catch (error) {
    // After any other error, the store may have carried out the extension.
    if (error instanceof LockError && error.code === "InvalidArgument") lease.refused(beforeMs);
    throw error;
  }
  if (!result?.ok) {
    lease.lostInStore(gone);
    return result;
  }
  lease.moved(endMs, ttlMs);
  // The lock was lost before the answer came, and whoever works under it has been told.
  if (lease.isLost()) return failure("expired");
  lease.show(result.expiresAtMs);
  return result;
}

/** Releases a lock for its holder. The result is a failure if the lock was lost or is found gone, whatever the store has freed. */
export async function releaseHeld(
  lease: Lease,
  access: HolderAccess,
  signal?: AbortSignal,
): Promise<ReleaseResult> {
  const isTooSoon = lease.leftToHoldMs > 0;
  if (isTooSoon) {
    // A heartbeat that is on its way would undo the shorter end.
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

/** Releases a lock under which nothing was done, so that `minHoldMs` does not count. */
export async function releaseUnused(lease: Lease, access: HolderAccess): Promise<ReleaseResult> {
  lease.end();
  const wasLost = lease.isLost();
  const result = await releaseBy(access, lease, {});
  return wasLost ? failure("expired") : result;
}

/**
 * Releases the lock under which something was done for its period, and stores in the same step that it is done, unless a transaction of
 * the holder was to store that. `undefined` if the lock is lost and no transaction may have stored it: then the caller releases the lock.
 */
export function finishHeld(lease: Lease, access: HolderAccess): Promise<ReleaseResult> | undefined {
  lease.end();
  return lease.mayBeDone || !lease.isLost() ? finish(lease, access) : undefined;
}

async function finish(lease: Lease, access: HolderAccess): Promise<ReleaseResult> {
  // Only the transaction may store that it is done, because it may have been rolled back. So this only releases.
  if (lease.mayBeDone && !lease.isLost()) {
    const result = await releaseBy(access, lease, {});
    if (result.ok) return result;
  }
  // If the lock is gone, this succeeds only where the mark is there.
  return await releaseBy(access, lease, { due: lease.due });
}

/**
 * Releases a lock whose lease has begun its end. If a user has replaced the backend's `release`, that is called. This is no async
 * function, because that would cost each release one more promise.
 */
export function releaseBy(
  { backend, release, leases }: HolderAccess,
  lease: Lease,
  how: HowToRelease,
): Promise<ReleaseResult> {
  const by = backend.release === release ? leases : new UsersLeases(backend);
  return by.release(lease, how);
}

/** Extends a lock. If a user has replaced the backend's `extend`, that is called. */
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

/** Releases a lock whose caller no longer waits for it, so that nothing was done under it. Failures are reported. */
export function giveBack(
  lease: Lease,
  access: HolderAccess,
  onReleaseError: OnReleaseError | undefined,
): void {
  lease.handBack();
  releaseUnused(lease, access).catch((error: unknown) =>
    reportReleaseError(error, reported(lease, undefined), onReleaseError),
  );
}

/** Releases a lock of which only the id is known, and which nobody gets. Failures are reported. */
export function releaseById(backend: Releasing, lockId: string, key: string): void {
  const release = async (): Promise<unknown> => await backend.release({ lockId });
  release().catch((error: unknown) => reportReleaseError(error, { lockId, key }, undefined));
}
