/** Releases that nobody awaits, and reports their failures. */

import { releaseArguments } from "./observed.js";
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

/** Passes the error of a release to `onReleaseError` or the default handler, and ignores what these throw. */
export function reportReleaseError(
  thrown: unknown,
  lockId: string,
  key: string,
  onReleaseError: OnReleaseError | undefined,
): void {
  const handler = onReleaseError ?? logReleaseError;
  callQuietly(() =>
    handler(thrown instanceof Error ? thrown : wrapThrown(thrown), {
      lockId,
      key,
      source: "disposal",
    }),
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

/** Calls a user's callback and ignores its errors, which must not affect the lock. */
export function callQuietly(callback: () => unknown): void {
  try {
    const returned = callback();
    if (typeof (returned as PromiseLike<unknown> | undefined)?.then === "function") {
      Promise.resolve(returned).catch(() => undefined);
    }
  } catch {
    // Ignored: see above.
  }
}

function wrapThrown(thrown: unknown): Error {
  // Not every value can be converted to a string.
  const message = typeof thrown === "string" ? thrown : `a ${typeof thrown} was thrown`;
  const error: Error & { originalError?: unknown } = new Error(message);
  error.originalError = thrown;
  return error;
}

/** The default handler. */
const logReleaseError: OnReleaseError = (error, { lockId, key, source }) => {
  if (process.env.NODE_ENV === "production" && process.env.SYNCGUARD_DEBUG !== "true") return;
  // Drivers may put identifiers into their messages, and they must not appear in a log that nobody asked for.
  const message = redact(redact(error.message, lockId, "[lockId]"), key, "[key]");
  console.error("[SyncGuard] Lock disposal failed:", {
    error: message,
    errorName: error.name,
    source,
  });
};

function redact(text: string, secret: string, placeholder: string): string {
  return secret === "" ? text : text.replaceAll(secret, placeholder);
}
