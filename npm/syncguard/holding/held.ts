/** What a holder does with its lock: extends it, releases it, says that its work is done. */

import { LockError } from "../native/errors.js";
import type { DisposalOptions } from "../values/arguments.js";
import { type Extending, endsLaterOn, extendOn, type Releasing, releaseOn } from "./internals.js";
import type { Lease } from "./lease.js";
import { failure, goneLock } from "../values/mutation.js";
import { reportReleaseError, type Reported } from "../watching/reports.js";
import { endWithin } from "../values/timers.js";
import { reported } from "./together.js";
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
  backend: Extending,
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
      result = await extendOn(backend, { ...ids, ttlMs, signal });
      gone = (result?.ok as unknown) === false ? goneLock(result, ids) : undefined;
      // That one was released by its id meanwhile, and so the others were not extended.
    } while (gone !== undefined && !lease.lockIds.includes(gone));
  } catch (error) {
    if (error instanceof LockError && error.code === "InvalidArgument") lease.refused(beforeMs);
    throw error;
  }
  if (!result?.ok) {
    lease.lostInStore(gone);
    return result;
  }
  // It was lost meanwhile, and whoever works under it has been told.
  if (lease.isLost()) return failure("expired");
  lease.show(result.expiresAtMs);
  lease.moved(endMs);
  return result;
}

/** Releases a lock for its holder. One that was lost, or is found gone, is not released, whatever the store has freed. */
export async function releaseHeld(
  lease: Lease,
  backend: Releasing,
  signal?: AbortSignal,
): Promise<ReleaseResult> {
  if (lease.leftToHoldMs > 0) {
    // What is on its way would make it last longer again.
    const settling = lease.settling();
    if (settling !== undefined) await settling;
  }
  lease.end();
  const wasLost = lease.isLost();
  const ids = signal === undefined ? lease.ids : { ...lease.ids, signal };
  const result = await giveBack(lease, backend, ids, wasLost);
  return outcomeOf(lease, result, ids, wasLost);
}

/** The same of a lock under which nothing was done, however long it was to be held. */
export async function releaseUnused(lease: Lease, backend: Releasing): Promise<ReleaseResult> {
  lease.end();
  const wasLost = lease.isLost();
  const { ids } = lease;
  return outcomeOf(lease, await releaseOn(backend, ids, lease), ids, wasLost);
}

/** What a release has come to for its holder. */
function outcomeOf(
  lease: Lease,
  result: ReleaseResult,
  ids: LockOp | LocksOp,
  wasLost: boolean,
): ReleaseResult {
  // Anyone may have written the backend.
  if ((result?.ok as unknown) === false) lease.gone(goneLock(result, ids));
  else if (result?.ok && lease.state !== "released") lease.freed(lease.lockIds);
  return wasLost ? failure("expired") : result;
}

/** Frees a lock, or lets it end later if it was not held for long enough. No async function: it would cost each release a promise more. */
function giveBack(
  lease: Lease,
  backend: Releasing,
  ids: LockOp | LocksOp,
  wasLost: boolean,
): Promise<ReleaseResult> {
  const holdMs = lease.leftToHoldMs;
  if (holdMs <= 0 || wasLost) return releaseOn(backend, ids, lease);
  if (endsLaterOn(backend)) return releaseOn(backend, { ...ids, holdMs }, lease);
  return endLater(lease, backend as Releasing & Extending, { ...ids, ttlMs: holdMs });
}

/** A backend of users' own can make a lock end by an extension only, and does not tell those who extend it. */
async function endLater(
  lease: Lease,
  backend: Extending,
  ids: (LockOp | LocksOp) & { ttlMs: number },
): Promise<ReleaseResult> {
  lease.stopHeartbeats(lease.lockIds);
  const ended = await extendOn(backend, ids);
  return ended.ok ? { ok: true } : ended;
}

/**
 * Releases the lock under which something was done for its period, and stores in the same step that it is, unless a transaction of the
 * holder's was to do that. `undefined` if it is lost: then it is to be released otherwise, unless it may have been done before that.
 */
export function finishHeld(lease: Lease, backend: Releasing): Promise<ReleaseResult> | undefined {
  lease.end();
  return lease.mayBeDone || !lease.isLost() ? finish(lease, backend) : undefined;
}

async function finish(lease: Lease, backend: Releasing): Promise<ReleaseResult> {
  const { due, ids } = lease;
  const isOpen = lease.mayBeDone && !lease.isLost();
  // The transaction may have been rolled back: that it is done, it alone may say.
  if (isOpen && (await releaseOn(backend, ids, lease)).ok) return { ok: true };
  // If the lock is gone, this succeeds only where the mark is there.
  const result = await releaseOn(backend, due === undefined ? ids : { ...ids, due }, lease);
  if (!result.ok) lease.gone();
  return result;
}

/** Releases a lock at the end of a block or of `lock()`. Never rejects. */
export async function disposeHeld(
  lease: Lease,
  backend: Releasing,
  { onReleaseError, disposeTimeoutMs }: DisposalOptions,
): Promise<void> {
  const release = async (signal?: AbortSignal): Promise<void> => {
    try {
      await releaseHeld(lease, backend, signal);
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
  const release = async (): Promise<unknown> => await releaseOn(backend, ids);
  release().catch((error: unknown) => reportReleaseError(error, reported, onReleaseError));
}
