/** Releases of locks that are held, and those that nobody awaits. */

import { type Term, terms } from "./keeping.js";
import { failure } from "./mutation.js";
import { releaseArguments } from "./observed.js";
import { reportReleaseError } from "./reports.js";
import type { LockBackend, LockOp, OnReleaseError, ReleaseResult } from "./types.js";

/**
 * Releases a lock for its holder. A lock that was lost, or is found gone, is not released, whatever the store has freed.
 *
 * @param held - what its acquisition gave, which telemetry hears of
 */
export async function releaseHeld(
  backend: Pick<LockBackend, "release">,
  args: LockOp,
  held: object,
  term: Term,
): Promise<ReleaseResult> {
  terms.end(term);
  const wasLost = terms.isLost(term);
  const result = await callRelease(backend, args, held);
  // Anyone may have written the backend.
  if ((result?.ok as unknown) === false) terms.gone(term);
  return wasLost ? failure("expired") : result;
}

/** Releases a lock that its caller no longer waits for. Failures are reported. */
export function releaseInBackground(
  backend: Pick<LockBackend, "release">,
  lockId: string,
  key: string,
  onReleaseError: OnReleaseError | undefined,
): void {
  callRelease(backend, { lockId }).catch((error: unknown) =>
    reportReleaseError(error, lockId, key, onReleaseError),
  );
}

/**
 * Calls `release` and turns a synchronous throw, which users' own backends may do, into a rejection.
 *
 * @param held - the lock's handle, which telemetry hears of
 */
async function callRelease(
  backend: Pick<LockBackend, "release">,
  args: LockOp,
  held?: object,
): Promise<ReleaseResult> {
  return await backend.release(releaseArguments(backend, args, held));
}
