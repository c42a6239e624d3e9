/** Runs a function under a lock if that is free at this moment, and does not wait for it otherwise. */

import { optionNames, refuseUnknown } from "../options/names.js";
import {
  checkBooleans,
  checkFunction,
  checkObject,
  copyGiven,
  invalid,
} from "../options/validation.js";
import { LABELS, readLabels, readMinHold, resolveTtl } from "../values/arguments.js";
import { readAutoExtend } from "../values/auto-extend.js";
import { readTarget } from "../values/claims.js";
import { leaseWithHandle, readDisposal } from "../holding/handle.js";
import { acquireOf, internalsOf } from "../holding/internals.js";
import { runUnder, type Work } from "./lock.js";
import type {
  BackendCapabilities,
  Claim,
  LockBackendLike,
  SyncGuardBackend,
  TryLockOptions,
  TryLockResult,
} from "../values/types.js";

const OPTIONS = optionNames("tryLock()", [
  ...["ttlMs", "signal", "autoExtend", "minHoldMs", "throwIfLost", ...LABELS],
  ...["onReleaseError", "onLost", "disposeTimeoutMs"],
]);

/** Asks once for the lock, runs `fn` while it is held, and frees it whatever `fn` did. */
export async function runTryLock<T, C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  wanted: string | Claim | readonly (string | Claim)[],
  fn: Work<T, C>,
  tryOptions: TryLockOptions | undefined,
): Promise<TryLockResult<T>> {
  const options = tryOptions ?? {};
  const target = readTarget(wanted);
  checkFunction(fn, "fn");
  checkObject(options, "options");
  refuseUnknown(options, OPTIONS);
  const throwIfLost = options.throwIfLost ?? false;
  checkBooleans({ throwIfLost });
  const ttlMs = resolveTtl(options.ttlMs);
  const minHoldMs = readMinHold(options.minHoldMs, ttlMs);
  const terms = { ...readDisposal(options), minHoldMs };
  const signal = options.signal ?? undefined;
  const autoExtend = readAutoExtend(options.autoExtend, ttlMs);
  const acquire = acquireOf(backend);
  if (internalsOf(backend)?.grants === undefined || acquire === undefined) {
    throw invalid("tryLock() needs a backend of this package");
  }
  const { key } = target;
  const request = { key, ttlMs, signal, autoExtend, ...readLabels(options) };
  const attempt = await acquire(request, { target, terms });
  if (!attempt.ok) return busyOf(attempt);
  const held = leaseWithHandle(backend, attempt, key);
  const value = await runUnder(backend, held, { target, signal, throwIfLost }, fn);
  return { ran: true, value };
}

type Busy = Extract<TryLockResult<never>, { ran: false }>;

/** What the store has said of whoever holds it. */
function busyOf(refused: { [Name in keyof Busy]?: Busy[Name] | undefined }): Busy {
  const busy: Busy = { ran: false, reason: "locked" };
  return copyGiven(busy, refused, "key", "retryAfterMs", "owner");
}

/** Creates the `tryLock` method of the backend that `self` returns. */
export function createTryLockMethod<C extends BackendCapabilities>(
  self: () => LockBackendLike<C>,
): SyncGuardBackend<C>["tryLock"] {
  const tryLock = async <T>(
    wanted: string | Claim | readonly (string | Claim)[],
    fn: Work<T, C>,
    options?: TryLockOptions,
  ): Promise<TryLockResult<T>> => await runTryLock(self(), wanted, fn, options);
  return tryLock as SyncGuardBackend<C>["tryLock"];
}
