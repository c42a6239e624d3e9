/** Releases whose failure nobody awaits. */

import type { LockBackend, OnReleaseError, ReleaseResult } from "./types.js";

/** Frees a lock that nobody waits for. Failures are reported. */
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

/** Hands a failed release to `onReleaseError` or the default handler; whatever these throw is dropped. */
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

/** Releases without throwing synchronously, as backends of users' own may. */
export async function callRelease(
  backend: Pick<LockBackend, "release">,
  lockId: string,
  signal?: AbortSignal,
): Promise<ReleaseResult> {
  return await backend.release({ lockId, signal });
}

/** Calls a user's callback whose errors must not reach the lock: what it throws or rejects with is dropped. */
export function callQuietly(callback: () => unknown): void {
  try {
    const returned = callback();
    if (typeof (returned as PromiseLike<unknown> | undefined)?.then === "function") {
      Promise.resolve(returned).catch(() => undefined);
    }
  } catch {
    // Dropped, as said.
  }
}

function wrapThrown(thrown: unknown): Error {
  // Not every value can be made a string.
  const message = typeof thrown === "string" ? thrown : `a ${typeof thrown} was thrown`;
  const error: Error & { originalError?: unknown } = new Error(message);
  error.originalError = thrown;
  return error;
}

/** The default handler. */
const logReleaseError: OnReleaseError = (error, { lockId, key, source }) => {
  if (process.env.NODE_ENV === "production" && process.env.SYNCGUARD_DEBUG !== "true") return;
  // Drivers may put identifiers into their messages; a log that nobody asked for shows none.
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
