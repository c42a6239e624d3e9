/** Handles: what a granted lock can do, and what happens when its block ends. */

import { callQuietly } from "./callback.js";
import { LockError } from "./errors.js";
import { checkDisposal } from "./validation.js";
import type {
  AcquireResult,
  BackendCapabilities,
  DisposableAcquireResult,
  DisposableLockHandle,
  KeyOp,
  LockBackend,
  OnReleaseError,
  ReleaseResult,
} from "./types.js";

/** The longest wait that setTimeout takes: it turns longer ones into none. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** How a handle ends. */
export type DisposalOptions = {
  readonly onReleaseError?: OnReleaseError | undefined;
  readonly disposeTimeoutMs?: number | undefined;
};

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
export function noLock<C extends BackendCapabilities>(): DisposableAcquireResult<C> {
  return { ok: false, reason: "locked", ...NO_LOCK };
}

/**
 * The methods of a granted lock: `release`, `extend` and disposal. For a result without a lock they do nothing.
 *
 * @param backend - where the lock is held
 * @param result - what its `acquire` returned
 * @param key - the lock's key, for `onReleaseError`
 * @param onReleaseError - hears of a release that failed during disposal; the default logs to the console unless
 *   `NODE_ENV` is `production` and `SYNCGUARD_DEBUG` is not `true`
 * @param disposeTimeoutMs - milliseconds after which disposal stops waiting and cancels the release
 */
export function createDisposableHandle<C extends BackendCapabilities>(
  backend: LockBackend<C>,
  result: AcquireResult<C>,
  key: string,
  onReleaseError?: OnReleaseError,
  disposeTimeoutMs?: number,
): DisposableLockHandle {
  checkDisposal(onReleaseError, disposeTimeoutMs);
  if (!result.ok) return { ...NO_LOCK };
  return addHandle({}, backend, result.lockId, key, { onReleaseError, disposeTimeoutMs });
}

/**
 * Gives `target` the methods of {@link createDisposableHandle} for a lock that is held, with options that are checked.
 *
 * They are assigned one by one because every acquisition comes through here: V8 takes several times as long for an
 * object literal with a computed name, and for a spread.
 */
export function addHandle<Target extends object, C extends BackendCapabilities>(
  target: Target,
  backend: LockBackend<C>,
  lockId: string,
  key: string,
  options: DisposalOptions,
): Target & DisposableLockHandle {
  // The one release, whoever started it: the holder or the end of the block.
  let releasing: Promise<unknown> | undefined;
  const held = target as Target & Mutable<DisposableLockHandle>;
  held.release = async (signal) => {
    if (releasing !== undefined) return { ok: false };
    const release = callRelease(backend, lockId, signal);
    releasing = release;
    return await release;
  };
  held.extend = async (ttlMs, signal) => await backend.extend({ lockId, ttlMs, signal });
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

type Mutable<T> = { -readonly [Name in keyof T]: T[Name] };

/**
 * The result of an acquisition with the methods of {@link createDisposableHandle}, for `await using`.
 *
 * Backends return this from `acquire`.
 */
export function decorateAcquireResult<C extends BackendCapabilities>(
  backend: LockBackend<C>,
  result: AcquireResult<C>,
  key: string,
  onReleaseError?: OnReleaseError,
  disposeTimeoutMs?: number,
): DisposableAcquireResult<C> {
  const handle = createDisposableHandle(backend, result, key, onReleaseError, disposeTimeoutMs);
  const decorated = { ...result, ...handle } as DisposableAcquireResult<C>;
  rememberDisposal(decorated, { onReleaseError, disposeTimeoutMs });
  return decorated;
}

/** Whether a result has the methods of a handle. */
export function isDecorated<C extends BackendCapabilities>(
  result: AcquireResult<C>,
): result is DisposableAcquireResult<C> {
  const handle = result as Partial<DisposableLockHandle>;
  return typeof handle.release === "function" && typeof handle[Symbol.asyncDispose] === "function";
}

/**
 * Tries once to take a lock, on any backend whose results can be disposed of.
 *
 * @throws LockError `Internal` if the backend returns plain results
 */
export async function acquireHandle<C extends BackendCapabilities>(
  backend: LockBackend<C>,
  opts: KeyOp & { ttlMs: number },
): Promise<DisposableAcquireResult<C>> {
  const result = await backend.acquire(opts);
  if (isDecorated(result)) return result;
  if (result?.ok) releaseInBackground(backend, result.lockId, opts.key, undefined);
  throw new LockError(
    "Internal",
    "Backend.acquire() must return a decorated result: use decorateAcquireResult()",
    { key: opts.key },
  );
}

/** Frees a lock that nobody waits for. Failures are reported. */
export function releaseInBackground<C extends BackendCapabilities>(
  backend: LockBackend<C>,
  lockId: string,
  key: string,
  onReleaseError: OnReleaseError | undefined,
): void {
  callRelease(backend, lockId).catch((error: unknown) =>
    reportReleaseError(error, lockId, key, onReleaseError),
  );
}

/** Hands a failed release to `onReleaseError` or the default handler; whatever these throw is dropped. */
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

/** What there is to do without a lock: nothing. */
const NO_LOCK: DisposableLockHandle = {
  release: async () => ({ ok: false }),
  extend: async () => ({ ok: false }),
  [Symbol.asyncDispose]: async () => undefined,
};

async function callRelease<C extends BackendCapabilities>(
  backend: LockBackend<C>,
  lockId: string,
  signal?: AbortSignal,
): Promise<ReleaseResult> {
  return await backend.release({ lockId, signal });
}

/** Releases at the end of a block. Never rejects. */
async function dispose<C extends BackendCapabilities>(
  backend: LockBackend<C>,
  lockId: string,
  key: string,
  { onReleaseError, disposeTimeoutMs }: DisposalOptions,
): Promise<void> {
  const report = (error: unknown): void => {
    reportReleaseError(error, lockId, key, onReleaseError);
  };
  try {
    if (disposeTimeoutMs === undefined) await backend.release({ lockId });
    else await releaseWithin(backend, lockId, disposeTimeoutMs, report);
  } catch (error) {
    report(error);
  }
}

/** Releases, but waits for it no longer than `timeoutMs`; then cancels it and reports what becomes of it. */
async function releaseWithin<C extends BackendCapabilities>(
  backend: LockBackend<C>,
  lockId: string,
  timeoutMs: number,
  report: (error: unknown) => void,
): Promise<void> {
  const controller = new AbortController();
  const release = callRelease(backend, lockId, controller.signal);
  let timer: ReturnType<typeof setTimeout> | undefined;
  const timeout = new Promise<"timeout">((resolve) => {
    timer = setTimeout(resolve, Math.min(timeoutMs, LONGEST_TIMER_MS), "timeout");
  });
  const first = await Promise.race([release, timeout]).finally(() => clearTimeout(timer));
  if (first !== "timeout") return;
  report(new LockError("NetworkTimeout", `Disposal took longer than ${timeoutMs} ms`));
  release.catch((error: unknown) => {
    // That it was cancelled has been reported: as the timeout that it is.
    if (!(error instanceof LockError && error.code === "Aborted")) report(error);
  });
  controller.abort();
}

function wrapThrown(thrown: unknown): Error {
  // Not every value can be made a string.
  const message = typeof thrown === "string" ? thrown : `a ${typeof thrown} was thrown`;
  const error: Error & { originalError?: unknown } = new Error(message);
  error.originalError = thrown;
  return error;
}

/** The default handler. */
const logReleaseError: OnReleaseError = (error, { lockId, key, source }) => {
  if (process.env.NODE_ENV === "production" && process.env.SYNCGUARD_DEBUG !== "true") return;
  // Drivers may put identifiers into their messages; a log that nobody asked for shows none.
  const message = redact(redact(error.message, lockId, "[lockId]"), key, "[key]");
  console.error("[SyncGuard] Lock disposal failed:", {
    error: message,
    errorName: error.name,
    source,
  });
};

function redact(text: string, secret: string, placeholder: string): string {
  return secret === "" ? text : text.replaceAll(secret, placeholder);
}
