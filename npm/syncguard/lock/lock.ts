/** Waits for a lock and holds it, while a callback runs or until its holder releases it. */

import type { LockError } from "../native/errors.js";
import { CALLBACK_WAITING, METHOD_WAITING } from "../native/wait.js";
import { checkBooleans, checkFunction, checkObject } from "../options/validation.js";
import { optionNames, refuseUnknown, WAITING, warnOfUnknown } from "../options/names.js";
import { acquireUntilHeld } from "./waiting.js";
import { checkBackend, readOwner, resolveTtl } from "./arguments.js";
import { readAutoExtend } from "./auto-extend.js";
import { runInside } from "./chain.js";
import {
  decorateAcquireResult,
  disposalOptions,
  dispose,
  extendMethod,
  isDecorated,
  readDisposal,
} from "./handle.js";

import { Handle } from "./held.js";
import { knownOf } from "./known.js";
import { type Term, termOf, terms } from "./keeping.js";
import type {
  AcquireOk,
  AcquisitionOptions,
  BackendCapabilities,
  BoundLock,
  ClosableLock,
  FencingCapabilities,
  HeldLock,
  LockBackend,
  LockBackendLike,
  LockConfig,
  LockHandle,
  LockHandleMembers,
  SyncGuardBackend,
} from "./types.js";

/** The configuration that `lock()` takes after the callback. */
export type Config = LockConfig & { acquisition?: AcquisitionOptions | undefined };

const CALLBACK_OPTIONS = optionNames(
  "lock()",
  [
    ...["key", "ttlMs", "signal", "autoExtend", "acquisition"],
    ...["owner", "onReleaseError", "onLost", "throwIfLost", "disposeTimeoutMs"],
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
  return async (fn, config) => await runLocked(backend, fn, config);
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
  const { key, acquisition } = config;
  const signal = config.signal ?? undefined;
  const { onReleaseError, onLost, disposeTimeoutMs } = readDisposal(config);
  const throwIfLost = config.throwIfLost ?? false;
  checkBooleans({ throwIfLost });
  const ttlMs = resolveTtl(config.ttlMs);
  const autoExtend = readAutoExtend(config.autoExtend, ttlMs);
  const held = await acquireUntilHeld(backend, {
    key,
    ttlMs,
    owner: readOwner(config.owner),
    signal,
    autoExtend,
    acquisition,
    defaults: CALLBACK_WAITING,
    onUnknown: warnOfUnknown,
    onReleaseError,
  });
  const general = disposalOptions(held);
  const known = knownOf(backend);
  const { clock, runHeld } = known;
  const term = termOf(held, key, clock);
  if (onLost !== undefined) terms.tell(term, onLost);
  const loss = (): LockError | undefined => terms.loss(term);
  const run = async (): Promise<T> => {
    try {
      const handle = createLockHandle(backend, held, key, term, signal);
      return await runInside(known, key, term, () => fn(handle));
    } finally {
      // Without the signal: if it has aborted the work, the lock must still be released.
      const options = {
        onReleaseError: onReleaseError ?? general?.onReleaseError,
        disposeTimeoutMs: disposeTimeoutMs ?? general?.disposeTimeoutMs,
      };
      await dispose(backend, held.lockId, key, options, held, term);
    }
  };
  const result = await (runHeld === undefined ? run() : runHeld(key, run, loss));
  const lost = throwIfLost ? loss() : undefined;
  if (lost !== undefined) throw lost;
  return result;
}

/** The handle that `lock()` passes to its callback. Its signal is aborted with `user`, too. */
function createLockHandle<C extends BackendCapabilities>(
  backend: Pick<LockBackend, "extend">,
  held: AcquireOk<C>,
  key: string,
  term: Term,
  user: AbortSignal | undefined,
): LockHandle<C> {
  let signal: AbortSignal | undefined;
  return Object.defineProperty(lockHandleMembers(backend, held, key, term), "signal", {
    get: () => (signal ??= terms.signalWith(term, user)),
    enumerable: true,
    configurable: true,
  }) as LockHandle<C>;
}

/** What the handles of callbacks have in common. */
export function lockHandleMembers<C extends BackendCapabilities>(
  backend: Pick<LockBackend, "extend">,
  held: AcquireOk<C>,
  key: string,
  term: Term,
): LockHandleMembers<C> {
  const { lockId, expiresAtMs, fence } = held as AcquireOk<FencingCapabilities>;
  const handle = { key, lockId, fence, expiresAtMs };
  terms.follow(term, handle);
  return Object.assign(handle, { extend: extendMethod(handle, backend, lockId, term) });
}

const METHOD_OPTIONS = optionNames(
  "backend.lock()",
  [
    ...["ttlMs", "signal", "autoExtend", "acquisition"],
    ...["owner", "onReleaseError", "onLost", "disposeTimeoutMs"],
  ],
  WAITING,
);

/** Creates the `lock` method of the backend that `self` returns. */
export function createLockMethod<C extends BackendCapabilities>(
  self: () => LockBackend<C>,
): SyncGuardBackend<C>["lock"] {
  return async (key, given) => {
    const options = given ?? {};
    checkObject(options, "options");
    refuseUnknown(options, METHOD_OPTIONS);
    const { signal, acquisition } = options;
    const { onReleaseError, onLost, disposeTimeoutMs } = readDisposal(options);
    const ttlMs = resolveTtl(options.ttlMs);
    const backend = self();
    const held = await acquireUntilHeld(backend, {
      key,
      ttlMs,
      owner: options.owner ?? undefined,
      signal,
      autoExtend: readAutoExtend(options.autoExtend, ttlMs),
      acquisition,
      defaults: METHOD_WAITING,
      onUnknown: refuseUnknown,
      onReleaseError,
    });
    if (onLost !== undefined && Handle.is(held)) Handle.tell(held, onLost);
    if (onReleaseError === undefined && disposeTimeoutMs === undefined && isDecorated(held)) {
      return held as HeldLock<C>;
    }
    const general = disposalOptions(held);
    return decorateAcquireResult(
      backend,
      held,
      key,
      onReleaseError ?? general?.onReleaseError,
      disposeTimeoutMs ?? general?.disposeTimeoutMs,
    ) as HeldLock<C>;
  };
}
