/** Releases that nobody awaits. */

import { releaseArguments } from "./observed.js";
import { reportReleaseError } from "./reports.js";
import type { LockBackend, OnReleaseError, ReleaseResult } from "./types.js";

/** Releases a lock that its caller no longer waits for. Failures are reported. */
export function releaseInBackground(
  backend: Pick<LockBackend, "release">,
  lockId: string,
  key: string,
  onReleaseError: OnReleaseError | undefined,
): void {
  callRelease(backend, lockId).catch((error: unknown) =>
    reportReleaseError(error, lockId, key, onReleaseError),
  );
}

/**
 * Calls `release` and turns a synchronous throw, which users' own backends may do, into a rejection.
 *
 * @param held - the lock's handle, which telemetry hears of
 */
export async function callRelease(
  backend: Pick<LockBackend, "release">,
  lockId: string,
  signal?: AbortSignal,
  held?: object,
): Promise<ReleaseResult> {
  return await backend.release(releaseArguments(backend, { lockId, signal }, held));
}
