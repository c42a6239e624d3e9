/** Handles: what a granted lock can do, and what happens when its block ends. */

import { LockError } from "../native/errors.js";
import { checkAborted, readSignal } from "../native/signal.js";
import { checkDisposal } from "./arguments.js";
import { callRelease, releaseInBackground, reportReleaseError } from "./release.js";
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

/** What handles need of a backend. */
type Mutations<C extends BackendCapabilities> = Pick<LockBackend, "release" | "extend"> & {
  readonly capabilities?: Readonly<C>;
};

/** The longest wait that setTimeout takes: it turns longer ones into none. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** How a handle ends. */
export type DisposalOptions = {
  readonly onReleaseError?: OnReleaseError | undefined;
  readonly disposeTimeoutMs?: number | undefined;
};

/** How a handle is to end, as given; `null` counts as not given. */
export function readDisposal(given: DisposalOptions): DisposalOptions {
  const onReleaseError = given.onReleaseError ?? undefined;
  const disposeTimeoutMs = given.disposeTimeoutMs ?? undefined;
  checkDisposal(onReleaseError, disposeTimeoutMs);
  return { onReleaseError, disposeTimeoutMs };
}

// Wrappers of a backend bind results to themselves and must keep how they end.
const disposalOf = new WeakMap<object, DisposalOptions>();

/** How the handle of a result ends, as far as it differs from the default. */
export function disposalOptions(result: object): DisposalOptions | undefined {
  return disposalOf.get(result);
}

/** Notes how the handle of a result ends, if not by default. */
export function rememberDisposal(result: object, options: DisposalOptions): void {
  if (options.onReleaseError !== undefined || options.disposeTimeoutMs !== undefined) {
    disposalOf.set(result, options);
  }
}

/** The result of an acquisition that found the lock held by somebody. */
export function noLock<C extends BackendCapabilities>(): DecoratedAcquireResult<C> {
  return { ok: false, reason: "locked", ...NO_LOCK };
}

/**
 * A granted lock with what can be done with it: the members of `result`, `release`, `extend` and disposal. For a result
 * without a lock the methods do nothing.
 *
 * @param backend - where the lock is held; only its `release` and `extend` are used
 * @param result - what its `acquire` returned
 * @param key - the lock's key, for `onReleaseError`
 * @param onReleaseError - hears of a release that failed during disposal; the default logs to the console unless
 *   `NODE_ENV` is `production` and `SYNCGUARD_DEBUG` is not `true`
 * @param disposeTimeoutMs - milliseconds after which disposal aborts the release and no longer waits for it;
 *   `onReleaseError` hears what the release is rejected with, then or later, and nothing if it never ends
 */
export function createDisposableHandle<C extends BackendCapabilities>(
  backend: Mutations<C>,
  result: AcquireOk<C>,
  key: string,
  onReleaseError?: OnReleaseError,
  disposeTimeoutMs?: number,
): AsyncLock<C>;
/** The same for a result that may be without a lock. */
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
  // The members alone: whoever granted it may have bound methods of the same names to itself.
  const { lockId } = result;
  const held = addHandle({ ...result }, backend, lockId, key, options) as unknown as AsyncLock<C>;
  rememberDisposal(held, options);
  return held;
}

/**
 * Gives `target` the methods of {@link createDisposableHandle} for a lock that is held, with options that are checked.
 *
 * They are assigned one by one because every acquisition comes through here: V8 takes several times as long for an
 * object literal with a computed name, and for a spread.
 */
export function addHandle<Target extends { expiresAtMs: number }>(
  target: Target,
  backend: Pick<LockBackend, "release" | "extend">,
  lockId: string,
  key: string,
  options: DisposalOptions,
): Target & DisposableLockHandle {
  // The one release, whoever started it: the holder or the end of the block.
  let releasing: Promise<unknown> | undefined;
  const held = target as Target & Mutable<DisposableLockHandle>;
  held.release = async (signal) => {
    if (releasing !== undefined) return { ok: false };
    // First, because there is one release only, and a signal that cannot be used must not be what it is spent on.
    if (signal !== undefined) checkAborted(readSignal(signal));
    const release = callRelease(backend, lockId, signal);
    releasing = release;
    return await release;
  };
  held.extend = extendMethod(held, backend, lockId);
  held[Symbol.asyncDispose] = async () => {
    if (releasing === undefined) {
      releasing = dispose(backend, lockId, key, options);
      await releasing;
    } else {
      // Whoever started the release hears of its error.
      await releasing.catch(() => undefined);
    }
  };
  return held;
}

/** The `extend` of a handle, which shows when the lock ends from then on. */
export function extendMethod(
  handle: { expiresAtMs: number },
  backend: Pick<LockBackend, "extend">,
  lockId: string,
): DisposableLockHandle["extend"] {
  return async (ttlMs, signal) => {
    const result = await backend.extend({ lockId, ttlMs, signal });
    if (result?.ok) handle.expiresAtMs = result.expiresAtMs;
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
  // Backends may be written by anyone, and return anything.
  const handle = result as Partial<DisposableLockHandle> | null | undefined;
  return typeof handle?.release === "function" && typeof handle[Symbol.asyncDispose] === "function";
}

/**
 * Tries once to take a lock, on any backend whose results can be disposed of. A plain result without a lock is passed on as
 * it is: there is nothing to dispose of.
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

/** What there is to do without a lock: nothing. */
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
): Promise<void> {
  const release = async (signal?: AbortSignal): Promise<void> => {
    try {
      await backend.release(signal === undefined ? { lockId } : { lockId, signal });
    } catch (error) {
      reportReleaseError(error, lockId, key, onReleaseError);
    }
  };
  if (disposeTimeoutMs === undefined) await release();
  else await endWithin(disposeTimeoutMs, release);
}

/** Runs what never rejects, but waits for it no longer than `timeoutMs`; then aborts its signal. */
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
