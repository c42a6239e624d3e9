/** What users hear of that cannot be thrown: releases that have failed, and locks that were lost. */

import type { LockError } from "../native/errors.js";
import type { Ids } from "./holding.js";
import type { OnLost, OnReleaseError } from "./types.js";

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

/** Passes the loss of a lock to `onLost` or the default handler, and ignores what these throw. */
export function reportLoss(
  error: LockError,
  { lockId, key }: Ids,
  onLost: OnLost | undefined,
): void {
  callQuietly(() => (onLost ?? logLoss)(error, { lockId, key }));
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

/** The default handlers. */
const logReleaseError: OnReleaseError = (error, { lockId, key, source }) => {
  log("Lock disposal failed", error, { lockId, key }, { source });
};
const logLoss: OnLost = (error, ids) => {
  log("A lock was lost while it was held", error, ids, {});
};

function log(what: string, { name, message }: Error, { lockId, key }: Ids, more: object): void {
  if (process.env.NODE_ENV === "production" && process.env.SYNCGUARD_DEBUG !== "true") return;
  // Drivers may put identifiers into their messages, and they must not appear in a log that nobody asked for.
  const error = redact(redact(message, lockId, "[lockId]"), key, "[key]");
  console.error(`[SyncGuard] ${what}:`, { error, errorName: name, ...more });
}

function redact(text: string, secret: string, placeholder: string): string {
  return secret === "" ? text : text.replaceAll(secret, placeholder);
}
