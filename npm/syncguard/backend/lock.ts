/** Waits for a lock and holds it, while a callback runs or until its holder releases it. */

import { CALLBACK_WAITING, METHOD_WAITING } from "../native/wait.js";
import { checkBooleans, checkFunction, checkObject, invalid } from "../options/validation.js";
import { optionNames, refuseUnknown, WAITING, warnOfUnknown } from "../options/names.js";
import { acquireUntilHeld } from "../waiting/waiting.js";
import { checkBackend, LABELS, readLabels, readMinHold, resolveTtl } from "../values/arguments.js";
import { readAutoExtend } from "../values/auto-extend.js";
import { runInside } from "../holding/chain.js";
import { exclusiveKeys, type LockTarget, readTarget } from "../values/claims.js";
import { subject } from "../watching/events.js";
import type { WantedTerms } from "../holding/grant.js";
import { disposalOf, type LeaseWithHandle, membersOfSet, readDisposal } from "../holding/handle.js";
import { disposeHeld, extendHeld } from "../holding/held.js";
import type { Lease } from "../holding/lease.js";
import { type Extending, internalsOf } from "../holding/internals.js";
import { Refusals } from "../values/refusals.js";
import type {
  AcquireOk,
  AcquisitionOptions,
  BackendCapabilities,
  BackendLockOptions,
  BoundLock,
  Claim,
  ClosableLock,
  FencingCapabilities,
  LockBackend,
  LockBackendLike,
  LockConfig,
  LockHandle,
  LockHandleMembers,
  SyncGuardBackend,
} from "../values/types.js";

/** The configuration that `lock()` takes after the callback. */
export type Config = Omit<LockConfig, "key" | "slots"> & {
  key: string | Claim | readonly (string | Claim)[];
  slots?: number | undefined;
  take?: number | undefined;
  acquisition?: AcquisitionOptions | undefined;
};

const CALLBACK_OPTIONS = optionNames(
  "lock()",
  [
    ...["key", "slots", "take", "ttlMs", "signal", "autoExtend", "acquisition"],
    ...[...LABELS, "onReleaseError", "onLost", "throwIfLost", "disposeTimeoutMs", "minHoldMs"],
  ],
  WAITING,
);

/** The callback of `lock()`. */
export type Work<T, C extends BackendCapabilities> = (handle: LockHandle<C>) => Promise<T> | T;

/**
 * `lock()` bound to `backend`.
 *
 * @throws LockError `InvalidArgument` if it is no backend
 * @example
 * ```ts
 * import { createAutoLock } from "syncguard/common";
 * import { createSqliteBackend } from "syncguard/sqlite";
 *
 * const lock = createAutoLock(createSqliteBackend("./locks.db"));
 * await lock(({ fence }) => console.log("working under fence", fence), { key: "report:nightly" });
 * ```
 */
export function createAutoLock<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
): BoundLock<C> {
  checkBackend(backend);
  const bound = async <T>(fn: Work<T, C>, config: Config): Promise<T> =>
    await runLocked(backend, fn, config);
  return bound as BoundLock<C>;
}

/** `lock()` bound to a backend of its own, which is closed with it. */
export function createOwnLock<C extends BackendCapabilities>(
  backend: SyncGuardBackend<C>,
): ClosableLock<C> {
  const { close, [Symbol.asyncDispose]: dispose } = backend;
  return Object.assign(createAutoLock(backend), { close, [Symbol.asyncDispose]: dispose });
}

/** Waits for the lock, runs `fn` while it is held, and frees it whatever `fn` did. */
export async function runLocked<T, C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  fn: Work<T, C>,
  config: Config,
): Promise<T> {
  checkFunction(fn, "fn");
  checkObject(config, "config");
  warnOfUnknown(config, CALLBACK_OPTIONS);
  const { acquisition } = config;
  const target = targetOf(config);
  const signal = config.signal ?? undefined;
  const disposal = readDisposal(config);
  const throwIfLost = config.throwIfLost ?? false;
  checkBooleans({ throwIfLost });
  const ttlMs = resolveTtl(config.ttlMs);
  const autoExtend = readAutoExtend(config.autoExtend, ttlMs);
  const minHoldMs = readMinHold(config.minHoldMs, ttlMs);
  const terms: WantedTerms = { ...disposal, minHoldMs };
  const { lease, handle } = await acquireUntilHeld(backend, {
    target,
    ttlMs,
    labels: readLabels(config),
    signal,
    autoExtend,
    acquisition,
    defaults: CALLBACK_WAITING,
    onUnknown: warnOfUnknown,
    terms,
  });
  return await runUnder(backend, { lease, handle }, { target, signal, throwIfLost }, fn);
}

/** What `lock()` is to take: a claim may stand beside the other options, if it is one of slots of a key. */
function targetOf({ key, slots, take }: Config): LockTarget {
  if ((slots ?? take ?? undefined) === undefined) return readTarget(key);
  if ((take ?? undefined) !== undefined)
    throw invalid("take belongs into a claim: key: { key, slots, take }");
  if (typeof key === "object") throw invalid("slots belongs into the claim that key is");
  return readTarget({ key, slots });
}

/** Of whoever runs a function under a lock. */
type Caller = {
  readonly target: LockTarget;
  readonly signal: AbortSignal | undefined;
  readonly throwIfLost: boolean;
};

/** Runs `fn` while the lock is held, and frees it whatever `fn` did. */
export async function runUnder<T, C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  { lease, handle }: LeaseWithHandle<C>,
  { target, signal, throwIfLost }: Caller,
  fn: Work<T, C>,
): Promise<T> {
  const { origin = backend, stream } = internalsOf(backend) ?? {};
  const run = async (): Promise<T> => {
    try {
      const lockHandle = createLockHandle(backend, handle, target.key, lease, signal);
      return await runInside(origin, exclusiveKeys(target), lease, () => fn(lockHandle));
    } finally {
      // Without the signal: if it has aborted the work, the lock must still be released. The handle is there until now, so that
      // the lock does not count as forgotten while the work runs.
      await disposeHeld(lease, backend, disposalOf(handle));
    }
  };
  const runHeld = stream?.runHeld;
  const result = await (runHeld === undefined
    ? run()
    : runHeld(subject(target), run, () => lease.loss));
  if (throwIfLost && lease.loss !== undefined) throw lease.loss;
  return result;
}

/** The handle that `lock()` passes to its callback. Its signal is aborted with `user`, too. */
export function createLockHandle<C extends BackendCapabilities>(
  backend: Extending,
  granted: AcquireOk<C>,
  key: string,
  lease: Lease,
  user: AbortSignal | undefined,
): LockHandle<C> {
  let signal: AbortSignal | undefined;
  const handle = lockHandleMembers(backend, granted, key, lease);
  return Object.defineProperty(handle, "signal", {
    get: () => (signal ??= lease.signalWith(user)),
    enumerable: true,
    configurable: true,
  }) as LockHandle<C>;
}

/** What the handles of callbacks have in common. */
export function lockHandleMembers<C extends BackendCapabilities>(
  backend: Extending,
  granted: AcquireOk<C>,
  key: string,
  lease: Lease,
): LockHandleMembers<C> {
  const { lockId, fence, slot, locks } = granted as AcquireOk<FencingCapabilities> & {
    slot?: number;
    locks?: unknown;
  };
  const shown = Object.defineProperty(new Refusals(), "expiresAtMs", {
    get: () => lease.expiresAtMs,
    enumerable: true,
    configurable: true,
  });
  const handle = Object.assign(shown, {
    ...(locks === undefined ? { key, lockId, fence } : membersOfSet(lease)),
    ...(slot === undefined ? {} : { slot }),
    ...lease.membersOfStore(),
  });
  lease.follow(handle);
  const extend: LockHandleMembers["extend"] = (ttlMs, signal) =>
    extendHeld(lease, backend, ttlMs, signal);
  const assertHeld = (): void => lease.assertHeld();
  return Object.assign(handle, { extend, assertHeld }) as unknown as LockHandleMembers<C>;
}

const METHOD_OPTIONS = optionNames(
  "backend.lock()",
  [
    ...["ttlMs", "signal", "autoExtend", "acquisition"],
    ...[...LABELS, "onReleaseError", "onLost", "disposeTimeoutMs", "minHoldMs"],
  ],
  WAITING,
);

/** Creates the `lock` method of the backend that `self` returns. */
export function createLockMethod<C extends BackendCapabilities>(
  self: () => LockBackend<C>,
): SyncGuardBackend<C>["lock"] {
  const lockMethod = async (
    wanted: string | Claim | readonly (string | Claim)[],
    optionsOrNull?: BackendLockOptions,
  ): Promise<unknown> => {
    const target = readTarget(wanted);
    const options = optionsOrNull ?? {};
    checkObject(options, "options");
    refuseUnknown(options, METHOD_OPTIONS);
    const { signal, acquisition } = options;
    const disposal = readDisposal(options);
    const ttlMs = resolveTtl(options.ttlMs);
    const minHoldMs = readMinHold(options.minHoldMs, ttlMs);
    const { handle } = await acquireUntilHeld(self(), {
      target,
      ttlMs,
      labels: readLabels(options),
      signal,
      autoExtend: readAutoExtend(options.autoExtend, ttlMs),
      acquisition,
      defaults: METHOD_WAITING,
      onUnknown: refuseUnknown,
      terms: { ...disposal, minHoldMs },
    });
    return handle;
  };
  return lockMethod as SyncGuardBackend<C>["lock"];
}
