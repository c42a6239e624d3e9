/** What users hear of that cannot be thrown: releases that have failed, and locks that were lost. */

import type { LockError } from "../native/errors.js";
import { type Releasing, releaseOn } from "./internals.js";
import type { LockOp, LocksOp, OnLeadError, OnLost, OnReleaseError } from "./types.js";
import { hashKey } from "./values.js";

type Ids = { readonly key: string; readonly lockId: string };

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

/** Releases a lock that its caller no longer waits for. Failures are reported. */
export function releaseInBackground(
  backend: Releasing,
  ids: LockOp | LocksOp,
  key: string,
  onReleaseError: OnReleaseError | undefined,
): void {
  const lockId = "lockId" in ids ? ids.lockId : ids.lockIds.join();
  const release = async (): Promise<unknown> => await releaseOn(backend, ids);
  release().catch((error: unknown) => reportReleaseError(error, lockId, key, onReleaseError));
}

/** Passes the loss of a lock to `onLost` or the default handler, and ignores what these throw. */
export function reportLoss(error: LockError, ids: Ids, onLost: OnLost | undefined): void {
  callQuietly(() => (onLost ?? logLoss)(error, ids));
}

/**
 * Passes what the function of `lead()` has thrown, or why a campaign has failed, to `onError`. Without it the error is printed, in
 * production, too: nobody else hears of it.
 */
export function reportLeadError(
  error: unknown,
  key: string,
  source: "term" | "campaign",
  onError: OnLeadError | undefined,
): void {
  const print: OnLeadError = () => {
    const what = source === "term" ? "The function of lead() has failed" : "A campaign has failed";
    console.error(`[SyncGuard] ${what}, and is tried again:`, error);
  };
  callQuietly(() => (onError ?? print)(error, { key, source }));
}

let hasWarned = false;

/**
 * Warns once of a lock that extends itself and whose handles were collected as garbage, without a release: the mistake is in the
 * program, and each of its locks would tell of the same.
 */
export function warnOfForgotten(key: string): void {
  if (hasWarned) return;
  hasWarned = true;
  process.emitWarning(
    `a lock with autoExtend was not released, and its handle was garbage-collected: nobody extends it any more, and it ends with its TTL (key hash ${hashKey(key)})`,
    {
      type: "SyncGuardWarning",
      code: "SYNCGUARD_FORGOTTEN_LOCK",
      detail:
        "Keep the handle for as long as you need the lock, and release it in finally; or use lock(fn).",
    },
  );
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
