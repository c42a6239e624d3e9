/** `lock()`: take a lock, run a function, free the lock. */

import { acquireUntilHeld } from "./acquisition.js";
import { getDefaultBackend } from "./default-backend.js";
import { readDisposal, reportReleaseError } from "./handle.js";
import { optionNames, WAITING, warnOfUnknown } from "./option-warnings.js";
import type {
  AcquireOk,
  AcquisitionOptions,
  BackendCapabilities,
  BoundLock,
  FencingCapabilities,
  LockBackend,
  LockBackendLike,
  LockConfig,
  LockHandle,
} from "./types.js";
import { checkBackend, checkFunction, checkObject, resolveTtl } from "./validation.js";

type Config = LockConfig & { acquisition?: AcquisitionOptions | undefined };
const OPTIONS = optionNames(
  "lock()",
  ["key", "ttlMs", "signal", "onReleaseError", "acquisition"],
  WAITING,
);
type Work<T, C extends BackendCapabilities> = (handle: LockHandle<C>) => Promise<T> | T;

/**
 * Waits for the lock, runs `fn` while it is held, and frees it whatever `fn` did.
 *
 * @param backend - where the lock is kept
 * @param fn - runs once the lock is held; what it returns or throws is what `lock` gives
 * @param config - which lock, and how to wait
 * @throws LockError `AcquisitionTimeout` if others held it for too long; `Aborted` if a signal ended the waiting; what
 *   the backend failed with. A release that failed goes to `config.onReleaseError` and hides nothing.
 */
export function lock<T, C extends BackendCapabilities = BackendCapabilities>(
  backend: LockBackendLike<C>,
  fn: (handle: LockHandle<C>) => Promise<T> | T,
  config: LockConfig & { acquisition?: AcquisitionOptions | undefined },
): Promise<T>;
/**
 * The same on the default backend: the one given to `setDefaultBackend()`, else the one that `SYNCGUARD_URL` names, else
 * a SQLite database in the user's state folder.
 *
 * Only processes of the same user on the same machine see that database. To exclude other machines, use a
 * backend on a server.
 *
 * @param fn - runs once the lock is held; what it returns or throws is what `lock` gives
 * @param config - which lock, and how to wait
 */
export function lock<T>(
  fn: (handle: LockHandle<FencingCapabilities>) => Promise<T> | T,
  config: LockConfig & { acquisition?: AcquisitionOptions | undefined },
): Promise<T>;
// Async, so that nothing is thrown synchronously.
export async function lock<T, C extends BackendCapabilities>(
  first: LockBackendLike<C> | Work<T, FencingCapabilities>,
  second: Work<T, C> | Config,
  third?: Config,
): Promise<T> {
  if (typeof first === "function") {
    return await runLocked(getDefaultBackend(), first, second as Config);
  }
  checkBackend(first);
  return await runLocked(first, second as Work<T, C>, third as Config);
}

/** `lock()` bound to `backend`. */
export function createAutoLock<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
): BoundLock<C> {
  checkBackend(backend);
  return async (fn, config) => await runLocked(backend, fn, config);
}

async function runLocked<T, C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  fn: Work<T, C>,
  config: Config,
): Promise<T> {
  checkFunction(fn, "fn");
  checkObject(config, "config");
  warnOfUnknown(config, OPTIONS);
  const { key, acquisition } = config;
  const signal = config.signal ?? undefined;
  const { onReleaseError } = readDisposal({ onReleaseError: config.onReleaseError });
  const ttlMs = resolveTtl(config.ttlMs);
  const request = { key, ttlMs, owner: undefined, signal, acquisition, onReleaseError };
  const held = await acquireUntilHeld(backend, request);
  try {
    return await fn(createLockHandle(backend, held, key, signal));
  } finally {
    // Without a signal: one that ended the work must not keep the lock held.
    try {
      await backend.release({ lockId: held.lockId });
    } catch (error) {
      reportReleaseError(error, held.lockId, key, onReleaseError);
    }
  }
}

/** What `lock()` hands to its callback. */
export function createLockHandle<C extends BackendCapabilities>(
  backend: Pick<LockBackend, "extend">,
  held: AcquireOk<C>,
  key: string,
  signal: AbortSignal | undefined,
): LockHandle<C> {
  const { lockId, expiresAtMs, fence } = held as AcquireOk<FencingCapabilities>;
  const handle = {
    key,
    lockId,
    fence,
    expiresAtMs,
    signal,
    extend: async (ttlMs: number, extendSignal?: AbortSignal) => {
      const result = await backend.extend({ lockId, ttlMs, signal: extendSignal });
      if (result.ok) handle.expiresAtMs = result.expiresAtMs;
      return result;
    },
  };
  return handle;
}
