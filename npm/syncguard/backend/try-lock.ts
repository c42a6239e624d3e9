/** Runs a function under a lock if the lock is free at this moment. Otherwise it does not wait. */

import { namesOf, optionNames, refuseUnknown } from "../options/names.js";
import { checkFunction, checkObject, copyGiven, invalid } from "../options/validation.js";
import { LABEL_OPTIONS, LABELS } from "../values/arguments.js";
import { BESIDE_KEY, type BesideKey, readTarget, type Wanted } from "../values/claims.js";
import { leaseWithHandle } from "../holding/handle.js";
import { acquireOf } from "../holding/internals.js";
import { argumentsOf, readHolding } from "../holding/options.js";
import { runUnder, type Work } from "./lock.js";
import type {
  BackendCapabilities,
  LockBackendLike,
  SyncGuardBackend,
  TryLockOptions,
  TryLockResult,
} from "../values/types.js";

const OPTIONS = optionNames("tryLock()", [
  ...namesOf<TryLockOptions>({
    ...LABEL_OPTIONS,
    mode: true,
    slots: true,
    ttlMs: true,
    signal: true,
    autoExtend: true,
    minHoldMs: true,
    throwIfLost: true,
    onReleaseError: true,
    onLost: true,
    disposeTimeoutMs: true,
  }),
  ...BESIDE_KEY,
]);

/** The options as `runTryLock` reads them: `slots` may be any number. */
type Options = Omit<TryLockOptions, keyof BesideKey> & BesideKey;

/** Asks once for the lock, runs `fn` while it is held, and frees it whatever `fn` did. */
export async function runTryLock<T, C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  wanted: Wanted,
  fn: Work<T, C>,
  tryOptions: Options | undefined,
): Promise<TryLockResult<T>> {
  const options = tryOptions ?? {};
  if (typeof options === "function") {
    throw invalid("tryLock() takes the function before the options: tryLock(key, fn, options)");
  }
  checkFunction(fn, "fn");
  checkObject(options, "options");
  refuseUnknown(options, OPTIONS);
  const target = readTarget(wanted, options);
  const holding = readHolding(options);
  const acquire = acquireOf(backend);
  if (acquire === undefined) throw invalid("tryLock() needs a backend of this package");
  const { key } = target;
  const attempt = await acquire(argumentsOf(key, holding), { target, terms: holding });
  if (!attempt.ok) return busyOf(attempt);
  const held = leaseWithHandle(attempt);
  const { signal, throwIfLost } = holding;
  const value = await runUnder(backend, held, { target, signal, throwIfLost }, fn);
  return { ran: true, value };
}

type Busy = Extract<TryLockResult<never>, { ran: false }>;

/** The result if somebody holds the lock, with what the store has said of that lock. */
function busyOf(refused: { [Name in keyof Busy]?: Busy[Name] | undefined }): Busy {
  const busy: Busy = { ran: false, reason: "locked" };
  return copyGiven(busy, refused, "key", "retryAfterMs", ...LABELS);
}

/** Creates the `tryLock` method of the backend that `self` returns. */
export function createTryLockMethod<C extends BackendCapabilities>(
  self: () => LockBackendLike<C>,
): SyncGuardBackend<C>["tryLock"] {
  const tryLock = async <T>(
    wanted: Wanted,
    fn: Work<T, C>,
    options?: Options,
  ): Promise<TryLockResult<T>> => await runTryLock(self(), wanted, fn, options);
  return tryLock as SyncGuardBackend<C>["tryLock"];
}
