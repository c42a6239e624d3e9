/** What users hear of that cannot be thrown: releases that have failed, and locks that were lost. */

import type { LockError } from "../native/errors.js";
import { isError, messageOf } from "../native/thrown.js";
import type { OnLeadError, OnLost, OnReleaseError } from "../values/types.js";
import { hashKey } from "../values/values.js";

/** What users are told of: a lock, or one of several that were granted together. */
export type Reported = Parameters<OnLost>[1];

/** Passes the error of a release to `onReleaseError` or the default handler, and ignores what these throw. */
export function reportReleaseError(
  thrown: unknown,
  reported: Reported,
  onReleaseError: OnReleaseError | undefined,
): void {
  const handler = onReleaseError ?? logReleaseError;
  callQuietly(() =>
    handler(isError(thrown) ? thrown : wrapThrown(thrown), {
      ...reported,
      source: "disposal",
    }),
  );
}

/** Passes the loss of a lock to `onLost` or the default handler, and ignores what these throw. */
export function reportLoss(error: LockError, reported: Reported, onLost: OnLost | undefined): void {
  callQuietly(() => (onLost ?? logLoss)(error, reported));
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
        "Keep the handle for as long as you need the lock, and release it, best with await using; or use lock(fn).",
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
  const error: Error & { originalError?: unknown } = new Error(messageOf(thrown));
  error.originalError = thrown;
  return error;
}

/** The default handlers. */
const logReleaseError: OnReleaseError = (error, { source, ...reported }) => {
  log("Lock disposal failed", error, reported, { source });
};
const logLoss: OnLost = (error, reported) => {
  log("A lock was lost while it was held", error, reported, {});
};

function log(what: string, { name, message }: Error, reported: Reported, more: object): void {
  if (process.env.NODE_ENV === "production" && process.env.SYNCGUARD_DEBUG !== "true") return;
  // Drivers may put identifiers into their messages, and they must not appear in a log that nobody asked for.
  let error = message;
  for (const { lockId, key } of [reported, ...(reported.locks ?? [])]) {
    error = redact(redact(error, lockId, "[lockId]"), key, "[key]");
  }
  console.error(`[SyncGuard] ${what}:`, { error, errorName: name, ...more });
}

/** Fewer characters stand in many words, and tell little. */
const SHORTEST_SECRET = 4;
const LETTER = String.raw`[\p{L}\p{N}_]`;

/** Only whole words are replaced: a key such as "lost" may be a part of others. */
function redact(text: string, secret: string, placeholder: string): string {
  if (secret.length < SHORTEST_SECRET) return text;
  const literal = secret.replace(/[\\^$.*+?()[\]{}|/]/g, String.raw`\$&`);
  const word = new RegExp(`(?<!${LETTER})${literal}(?!${LETTER})`, "gu");
  return text.replace(word, () => placeholder);
}
