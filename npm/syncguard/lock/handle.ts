/** Handles: the methods of a granted lock, and its release at the end of a block. */

import { LockError } from "../native/errors.js";
import { checkAborted, readSignal } from "../native/signal.js";
import "./disposable.js";
import { checkDisposal, type DisposalOptions } from "./arguments.js";
import { type Clock, systemClock } from "./clock.js";
import { Handle, WHOSE } from "./held.js";
import { type Term, terms } from "./keeping.js";
import { ifKnown } from "./known.js";
import { failure } from "./mutation.js";
import { releaseHeld, releaseInBackground } from "./release.js";
import { reportReleaseError } from "./reports.js";
import { LONGEST_TIMER_MS } from "./timers.js";
import type {
  AcquireOk,
  AcquireResult,
  AsyncLock,
  BackendCapabilities,
  DecoratedAcquireResult,
  DisposableLockHandle,
  ExtendResult,
  KeyOp,
  LockBackend,
  LockBackendLike,
  OnReleaseError,
} from "./types.js";

/** The part of a backend that handles need. */
type Mutations<C extends BackendCapabilities> = Pick<LockBackend, "release" | "extend"> & {
  /** What the backend can do. */
  readonly capabilities?: Readonly<C>;
};

/** The options for handles; `null` counts as not given. */
export function readDisposal(given: DisposalOptions): DisposalOptions {
  const options: DisposalOptions = {
    onReleaseError: given.onReleaseError ?? undefined,
    onLost: given.onLost ?? undefined,
    disposeTimeoutMs: given.disposeTimeoutMs ?? undefined,
  };
  checkDisposal(options);
  return options;
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
 * The handle of a granted lock: the members of `result`, and the methods `release`, `extend` and disposal.
 *
 * @param backend - where the lock is held; only its `release` and `extend` are used
 * @param result - what its `acquire` returned
 * @param key - the lock's key, for `onReleaseError`
 * @param onReleaseError - called when a release fails during disposal
 * @param disposeTimeoutMs - milliseconds after which disposal aborts the release and stops waiting for it;
 *   `onReleaseError` is called when the release is rejected, then or later, and not at all if it never ends
 * @throws LockError `InvalidArgument` for options that disposal cannot use
 * @example
 * ```ts
 * import { createDisposableHandle, type LockBackendLike } from "syncguard/common";
 *
 * async function work(mine: LockBackendLike): Promise<void> {
 *   const result = await mine.acquire({ key: "report:nightly", ttlMs: 30_000 });
 *   if (!result.ok) return;
 *   await using handle = createDisposableHandle(mine, result, "report:nightly");
 *   console.log("held until", new Date(handle.expiresAtMs));
 * }
 * ```
 */
export function createDisposableHandle<C extends BackendCapabilities>(
  backend: Mutations<C>,
  result: AcquireOk<C>,
  key: string,
  onReleaseError?: OnReleaseError,
  disposeTimeoutMs?: number,
): AsyncLock<C>;
/**
 * The result of an acquisition with the methods of a handle. Without a lock, the methods do nothing.
 *
 * @throws LockError `InvalidArgument` for options that disposal cannot use
 * @example
 * ```ts
 * import { createDisposableHandle, type LockBackendLike } from "syncguard/common";
 *
 * async function attempt(mine: LockBackendLike): Promise<boolean> {
 *   const result = await mine.acquire({ key: "report:nightly", ttlMs: 30_000 });
 *   await using handle = createDisposableHandle(mine, result, "report:nightly");
 *   return handle.ok;
 * }
 * ```
 */
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
  const known = ifKnown(backend);
  const handle = Handle.over(result, key, known?.clock ?? systemClock, known?.reports === true);
  known?.grants?.replace(handle);
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
    const release = releaseHeld(backend, { lockId, signal }, held, held);
    releasing = release;
    return await release;
  };
  held.extend = extendMethod(held, backend, lockId, held);
  held[Symbol.asyncDispose] = async () => {
    if (releasing === undefined) {
      releasing = dispose(backend, lockId, key, options, held, held);
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
 * @param term - told when the lock ends then
 */
export function extendMethod(
  handle: { expiresAtMs: number },
  backend: Pick<LockBackend, "extend">,
  lockId: string,
  term: Term,
): DisposableLockHandle["extend"] {
  return (ttlMs, signal) => {
    if ((ttlMs as unknown) === WHOSE) return handle as never;
    return extendHeld(handle, backend, lockId, term, ttlMs, signal);
  };
}

async function extendHeld(
  handle: { expiresAtMs: number },
  backend: Pick<LockBackend, "extend">,
  lockId: string,
  term: Term,
  ttlMs: number,
  signal: AbortSignal | undefined,
): Promise<ExtendResult> {
  if (terms.isLost(term)) return failure("expired");
  const endMs = clockOf(backend).elapsed() + ttlMs;
  // The store may carry it out from now on, also if nobody hears of it.
  const undo = signal?.aborted === true ? undefined : terms.endsBy(term, endMs);
  let result;
  try {
    result = await backend.extend({ lockId, ttlMs, signal });
  } catch (error) {
    if (error instanceof LockError && error.code === "InvalidArgument") undo?.();
    throw error;
  }
  // It was lost meanwhile, and whoever works under it has been told.
  if (result?.ok && terms.isLost(term)) return failure("expired");
  if (result?.ok) handle.expiresAtMs = result.expiresAtMs;
  terms.moved(term, result?.ok ? endMs : undefined);
  return result;
}

function clockOf(backend: object): Clock {
  return ifKnown(backend)?.clock ?? systemClock;
}

type Mutable<T> = { -readonly [Name in keyof T]: T[Name] };

/**
 * The result of an acquisition with the methods of {@link createDisposableHandle}, for `await using`.
 *
 * Backends return this from `acquire`.
 *
 * @param backend - where the lock is held; only its `release` and `extend` are used
 * @param result - what the store has answered
 * @param key - the lock's key, for `onReleaseError`
 * @param onReleaseError - called when a release fails during disposal
 * @param disposeTimeoutMs - milliseconds after which disposal aborts the release and stops waiting for it
 * @throws LockError `InvalidArgument` for options that disposal cannot use
 * @example
 * ```ts
 * import { decorateAcquireResult, type LockBackend, type LockBackendLike } from "syncguard";
 *
 * function disposable(mine: LockBackendLike): LockBackend {
 *   return {
 *     ...mine,
 *     acquire: async (opts) => decorateAcquireResult(mine, await mine.acquire(opts), opts.key),
 *   };
 * }
 * ```
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
 * @throws LockError `Internal` if the backend returns a plain result for a granted lock, which is released; or the error of
 *   its `acquire`
 * @example
 * ```ts
 * import { acquireHandle } from "syncguard";
 *
 * await using attempt = await acquireHandle(backend, { key: "report:nightly", ttlMs: 30_000 });
 * if (attempt.ok) console.log("working under fence", attempt.fence);
 * ```
 */
export async function acquireHandle<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  opts: KeyOp & {
    /** Milliseconds after which the lock ends by itself. */
    ttlMs: number;
  },
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

/** Releases at the end of a block or of `lock()`. Never rejects. */
export async function dispose(
  backend: Pick<LockBackend, "release">,
  lockId: string,
  key: string,
  { onReleaseError, disposeTimeoutMs }: DisposalOptions,
  held: object,
  term: Term,
): Promise<void> {
  const release = async (signal?: AbortSignal): Promise<void> => {
    try {
      const args = signal === undefined ? { lockId } : { lockId, signal };
      await releaseHeld(backend, args, held, term);
    } catch (error) {
      reportReleaseError(error, lockId, key, onReleaseError);
    }
  };
  if (disposeTimeoutMs === undefined) await release();
  else await endWithin(clockOf(backend), disposeTimeoutMs, release);
}

/** Calls `run`, which never rejects. After `timeoutMs`, aborts its signal and stops waiting. */
function endWithin(
  clock: Clock,
  timeoutMs: number,
  run: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  return new Promise((resolve) => {
    const controller = new AbortController();
    const timer = clock.setTimeout(
      () => {
        controller.abort();
        resolve();
      },
      Math.min(timeoutMs, LONGEST_TIMER_MS),
    );
    void run(controller.signal).then(() => {
      clock.clearTimeout(timer);
      resolve();
    });
  });
}
