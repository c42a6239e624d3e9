/** Waits for a lock and holds it, while a callback runs or until its holder releases it. */

import { CALLBACK_WAITING, METHOD_WAITING } from "../waiting/policies.js";
import type { LockError } from "../native/errors.js";
import { checkFunction, checkObject, invalid } from "../options/validation.js";
import { namesOf, optionNames, refuseUnknown, WAITING, warnOfUnknown } from "../options/names.js";
import { acquireUntilHeld } from "../waiting/waiting.js";
import { checkBackend, LABEL_OPTIONS } from "../values/arguments.js";
import { runInside } from "../holding/chain.js";
import {
  BESIDE_KEY,
  type BesideKey,
  claimsOf,
  type LockTarget,
  readTarget,
  type Wanted,
} from "../values/claims.js";
import { subject } from "../watching/events.js";
import { disposalOf, type LeaseWithHandle, membersOfSet } from "../holding/handle.js";
import { disposeHeld, extendHeld } from "../holding/held.js";
import type { Lease } from "../holding/lease.js";
import { readHolding } from "../holding/options.js";
import { accessTo, type HolderAccess, internalsOf } from "../holding/internals.js";
import { Refusals } from "../values/refusals.js";
import type {
  AcquireOk,
  BackendCapabilities,
  BackendLockOptions,
  BoundLock,
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
export type Config = Omit<LockConfig, "key" | keyof BesideKey> & BesideKey & { key: Wanted };

/** The options of both ways to wait for a lock. */
const BOTH = {
  ...LABEL_OPTIONS,
  mode: true,
  slots: true,
  ttlMs: true,
  signal: true,
  autoExtend: true,
  acquisition: true,
  onReleaseError: true,
  onLost: true,
  disposeTimeoutMs: true,
  minHoldMs: true,
} as const;

const CALLBACK_OPTIONS = optionNames(
  "lock()",
  [...namesOf<LockConfig>({ ...BOTH, key: true, throwIfLost: true }), ...BESIDE_KEY],
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
  if (typeof config === "string") throw keyElsewhere();
  checkObject(config, "config");
  warnOfUnknown(config, CALLBACK_OPTIONS);
  const target = readTarget(config.key, config);
  const holding = readHolding(config);
  const { acquisition } = config;
  const { lease, handle } = await acquireUntilHeld(backend, {
    ...{ target, holding, acquisition },
    ...{ defaults: CALLBACK_WAITING, onUnknown: warnOfUnknown },
  });
  const { signal, throwIfLost } = holding;
  return await runUnder(backend, { lease, handle }, { target, signal, throwIfLost }, fn);
}

/** The error for a key in the place of a backend or of the configuration. */
export function keyElsewhere(): LockError {
  return invalid("lock() takes the key in the last argument, after the function: { key }");
}

/** What the caller of a function under a lock has asked for. */
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
  const access = accessTo(backend);
  const run = async (): Promise<T> => {
    try {
      const lockHandle = createLockHandle(access, handle, target.key, lease, signal);
      return await runInside(origin, claimsOf(target), lease, () => fn(lockHandle));
    } finally {
      // The signal does not count here: if it has aborted the work, the lock must still be released. The handle must live until now,
      // so that the lock does not count as forgotten while the work runs.
      await disposeHeld(lease, access, disposalOf(handle));
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
  access: HolderAccess,
  granted: AcquireOk<C>,
  key: string,
  lease: Lease,
  user: AbortSignal | undefined,
): LockHandle<C> {
  let signal: AbortSignal | undefined;
  const handle = lockHandleMembers(access, granted, key, lease);
  return Object.defineProperty(handle, "signal", {
    get: () => (signal ??= lease.signalWith(user)),
    enumerable: true,
    configurable: true,
  }) as LockHandle<C>;
}

/** Makes the members that the handles of all callbacks have. */
export function lockHandleMembers<C extends BackendCapabilities>(
  access: HolderAccess,
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
    extendHeld(lease, access, ttlMs, signal);
  const assertHeld = (): void => lease.assertHeld();
  return Object.assign(handle, { extend, assertHeld }) as unknown as LockHandleMembers<C>;
}

const METHOD_OPTIONS = optionNames(
  "backend.lock()",
  [...namesOf<BackendLockOptions>(BOTH), ...BESIDE_KEY],
  WAITING,
);

/** Creates the `lock` method of the backend that `self` returns. */
export function createLockMethod<C extends BackendCapabilities>(
  self: () => LockBackend<C>,
): SyncGuardBackend<C>["lock"] {
  const lockMethod = async (
    wanted: Wanted,
    optionsOrNull?: Omit<BackendLockOptions, keyof BesideKey> & BesideKey,
  ): Promise<unknown> => {
    const options = optionsOrNull ?? {};
    checkObject(options, "options");
    refuseUnknown(options, METHOD_OPTIONS);
    const target = readTarget(wanted, options);
    const holding = readHolding(options);
    const { acquisition } = options;
    const { handle } = await acquireUntilHeld(self(), {
      ...{ target, holding, acquisition },
      ...{ defaults: METHOD_WAITING, onUnknown: refuseUnknown },
    });
    return handle;
  };
  return lockMethod as SyncGuardBackend<C>["lock"];
}
