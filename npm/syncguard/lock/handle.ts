/** Handles: the methods of a granted lock, and its release at the end of a block. */

import { LockError } from "../native/errors.js";
import { checkAborted, readSignal } from "../native/signal.js";
import { checkDisposal } from "./arguments.js";
import { Handle } from "./held.js";
import { isObserved, releaseArguments } from "./observed.js";
import { callRelease, releaseInBackground, reportReleaseError } from "./release.js";
import { LONGEST_TIMER_MS } from "./timers.js";
import { releasing as tellWaiters } from "./turns.js";
import type {
  AcquireOk,
  AcquireResult,
  AsyncLock,
  BackendCapabilities,
  DecoratedAcquireResult,
  DisposableLockHandle,
  KeyOp,
  LockBackend,
  LockBackendLike,
  OnReleaseError,
} from "./types.js";

/** The part of a backend that handles need. */
type Mutations<C extends BackendCapabilities> = Pick<LockBackend, "release" | "extend"> & {
  readonly capabilities?: Readonly<C>;
};

/** How a handle is disposed of. */
export type DisposalOptions = {
  readonly onReleaseError?: OnReleaseError | undefined;
  readonly disposeTimeoutMs?: number | undefined;
};

/** The options for disposal; `null` counts as not given. */
export function readDisposal(given: DisposalOptions): DisposalOptions {
  const onReleaseError = given.onReleaseError ?? undefined;
  const disposeTimeoutMs = given.disposeTimeoutMs ?? undefined;
  checkDisposal(onReleaseError, disposeTimeoutMs);
  return { onReleaseError, disposeTimeoutMs };
}

// Wrappers of a backend make new handles from results, and must keep the options for disposal.
const disposalOf = new WeakMap<object, DisposalOptions>();

/** How the handle of a result is disposed of, if not by default. */
export function disposalOptions(result: object): DisposalOptions | undefined {
  return disposalOf.get(result);
}

/** Remembers how the handle of a result is disposed of, if not by default. */
export function rememberDisposal(result: object, options: DisposalOptions): void {
  if (options.onReleaseError !== undefined || options.disposeTimeoutMs !== undefined) {
    disposalOf.set(result, options);
  }
}

/** The result of an acquisition that found the lock held by somebody. */
export function noLock(): { ok: false; reason: "locked" } & DisposableLockHandle {
  return { ok: false, reason: "locked", ...NO_LOCK };
}

/**
 * The handle of a granted lock: the members of `result`, and the methods `release`, `extend` and disposal. For a result
 * without a lock, the methods do nothing.
 *
 * @param backend - where the lock is held; only its `release` and `extend` are used
 * @param result - what its `acquire` returned
 * @param key - the lock's key, for `onReleaseError`
 * @param onReleaseError - called when a release fails during disposal; the default logs to the console, unless `NODE_ENV`
 *   is `production` and `SYNCGUARD_DEBUG` is not `true`
 * @param disposeTimeoutMs - milliseconds after which disposal aborts the release and stops waiting for it;
 *   `onReleaseError` is called when the release is rejected, then or later, and not at all if it never ends
 */
export function createDisposableHandle<C extends BackendCapabilities>(
  backend: Mutations<C>,
  result: AcquireOk<C>,
  key: string,
  onReleaseError?: OnReleaseError,
  disposeTimeoutMs?: number,
): AsyncLock<C>;
/** The same for a result that may have no lock. */
export function createDisposableHandle<C extends BackendCapabilities>(
  backend: Mutations<C>,
  result: AcquireResult<C>,
  key: string,
  onReleaseError?: OnReleaseError,
  disposeTimeoutMs?: number,
): DecoratedAcquireResult<C>;
export function createDisposableHandle<C extends BackendCapabilities>(
  backend: Mutations<C>,
  result: AcquireResult<C>,
  key: string,
  onReleaseError?: OnReleaseError,
  disposeTimeoutMs?: number,
): DecoratedAcquireResult<C> {
  const options = readDisposal({ onReleaseError, disposeTimeoutMs });
  if (!result.ok) return { ...result, ...NO_LOCK };
  const handle = Handle.over(result, key, isObserved(backend));
  const held = addHandle(handle, backend, result.lockId, key, options) as unknown as AsyncLock<C>;
  rememberDisposal(held, options);
  return held;
}

/**
 * Gives `held` the methods of {@link createDisposableHandle} for a lock that is held. The options must be checked.
 *
 * The methods are assigned one by one, because every acquisition comes through here, and an object literal with a computed
 * name or a spread takes V8 several times as long.
 */
export function addHandle(
  handle: Handle,
  backend: Pick<LockBackend, "release" | "extend">,
  lockId: string,
  key: string,
  options: DisposalOptions,
): Handle & DisposableLockHandle {
  // There is only one release, started either by the holder or by the end of the block.
  let releasing: Promise<unknown> | undefined;
  const held = handle as Handle & Mutable<DisposableLockHandle>;
  held.release = async (signal) => {
    if (releasing !== undefined) return { ok: false };
    // Checked first: an unusable signal must not use up the only release.
    if (signal !== undefined) checkAborted(readSignal(signal));
    Handle.end(held);
    const release = callRelease(backend, lockId, signal, held);
    releasing = release;
    tellWaiters(backend, key, lockId, false);
    const result = await release;
    tellWaiters(backend, key, lockId, true);
    return result;
  };
  held.extend = extendMethod(held, backend, lockId, (endMs) => Handle.moved(held, endMs));
  held[Symbol.asyncDispose] = async () => {
    if (releasing === undefined) {
      Handle.end(held);
      releasing = dispose(backend, lockId, key, options, held);
      await releasing;
    } else {
      // Its error goes to whoever started the release.
      await releasing.catch(() => undefined);
    }
  };
  return held;
}

/**
 * The `extend` method of a handle, which also updates its `expiresAtMs`.
 *
 * @param moved - told when the lock ends then, of `performance.now()`; `undefined` if it is gone
 */
export function extendMethod(
  handle: { expiresAtMs: number },
  backend: Pick<LockBackend, "extend">,
  lockId: string,
  moved: (endMs: number | undefined) => void,
): DisposableLockHandle["extend"] {
  return async (ttlMs, signal) => {
    const startedMs = performance.now();
    const result = await backend.extend({ lockId, ttlMs, signal });
    if (result?.ok) {
      handle.expiresAtMs = result.expiresAtMs;
      moved(startedMs + ttlMs);
    } else {
      moved(undefined);
    }
    return result;
  };
}

type Mutable<T> = { -readonly [Name in keyof T]: T[Name] };

/**
 * The result of an acquisition with the methods of {@link createDisposableHandle}, for `await using`.
 *
 * Backends return this from `acquire`.
 */
export function decorateAcquireResult<C extends BackendCapabilities>(
  backend: Mutations<C>,
  result: AcquireResult<C>,
  key: string,
  onReleaseError?: OnReleaseError,
  disposeTimeoutMs?: number,
): DecoratedAcquireResult<C> {
  return createDisposableHandle(backend, result, key, onReleaseError, disposeTimeoutMs);
}

/** Whether a result has the methods of a handle. */
export function isDecorated<C extends BackendCapabilities>(
  result: AcquireResult<C>,
): result is DecoratedAcquireResult<C> {
  // Anyone may have written the backend, and it may return anything.
  const handle = result as Partial<DisposableLockHandle> | null | undefined;
  return typeof handle?.release === "function" && typeof handle[Symbol.asyncDispose] === "function";
}

/**
 * Tries once to take a lock, on any backend whose results can be disposed of. A plain result without a lock is returned as
 * it is, because there is nothing to dispose of.
 *
 * @throws LockError `Internal` if the backend returns a plain result for a granted lock, which is released
 */
export async function acquireHandle<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  opts: KeyOp & { ttlMs: number },
): Promise<DecoratedAcquireResult<C>> {
  const result = await backend.acquire(opts);
  if (isDecorated(result)) return result;
  if ((result?.ok as unknown) === false) return result as DecoratedAcquireResult<C>;
  if (result?.ok) releaseInBackground(backend, result.lockId, opts.key, undefined);
  throw new LockError(
    "Internal",
    "Backend.acquire() must return a decorated result: use decorateAcquireResult()",
    { key: opts.key },
  );
}

/** The methods of a handle without a lock, which do nothing. */
const NO_LOCK: DisposableLockHandle = {
  release: async () => ({ ok: false }),
  extend: async () => ({ ok: false }),
  [Symbol.asyncDispose]: async () => undefined,
};

/** Releases at the end of a block. Never rejects. */
async function dispose(
  backend: Pick<LockBackend, "release">,
  lockId: string,
  key: string,
  { onReleaseError, disposeTimeoutMs }: DisposalOptions,
  held: Handle,
): Promise<void> {
  const release = async (signal?: AbortSignal): Promise<void> => {
    try {
      const args = signal === undefined ? { lockId } : { lockId, signal };
      const released = backend.release(releaseArguments(backend, args, held));
      tellWaiters(backend, key, lockId, false);
      await released;
      tellWaiters(backend, key, lockId, true);
    } catch (error) {
      reportReleaseError(error, lockId, key, onReleaseError);
    }
  };
  if (disposeTimeoutMs === undefined) await release();
  else await endWithin(disposeTimeoutMs, release);
}

/** Calls `run`, which never rejects. After `timeoutMs`, aborts its signal and stops waiting. */
function endWithin(timeoutMs: number, run: (signal: AbortSignal) => Promise<void>): Promise<void> {
  return new Promise((resolve) => {
    const controller = new AbortController();
    const timer = setTimeout(
      () => {
        controller.abort();
        resolve();
      },
      Math.min(timeoutMs, LONGEST_TIMER_MS),
    );
    void run(controller.signal).then(() => {
      clearTimeout(timer);
      resolve();
    });
  });
}
