import { checkBackend } from "../lock/arguments.js";
import { type Config, runLocked, type Work } from "../lock/lock.js";
import type {
  AcquisitionOptions,
  BackendCapabilities,
  FencingCapabilities,
  LockBackendLike,
  LockConfig,
  LockHandle,
} from "../lock/types.js";
import { getDefaultBackend } from "./backend.js";

/**
 * Waits for the lock, runs `fn` while it is held, and frees it whatever `fn` did.
 *
 * @param backend - where the lock is kept
 * @param fn - runs once the lock is held; what it returns or throws is what `lock` gives
 * @param config - which lock, and how to wait
 * @throws LockError `AcquisitionTimeout` if others held it for too long; `Aborted` if a signal ended the waiting; or the
 *   backend's error. A failed release is reported to `config.onReleaseError` and never replaces the result of `fn`.
 */
export function lock<T, C extends BackendCapabilities = BackendCapabilities>(
  backend: LockBackendLike<C>,
  fn: (handle: LockHandle<C>) => Promise<T> | T,
  config: LockConfig & { acquisition?: AcquisitionOptions | undefined },
): Promise<T>;
/**
 * The same on the default backend: the one given to `setDefaultBackend()`, else the one that `SYNCGUARD_URL` names, else
 * an SQLite database in the user's state folder.
 *
 * Only processes of the same user on the same machine use that database, so its locks exclude neither other users nor
 * other machines. For those, use a backend on a server.
 *
 * @param fn - runs once the lock is held; what it returns or throws is what `lock` gives
 * @param config - which lock, and how to wait
 */
export function lock<T>(
  fn: (handle: LockHandle<FencingCapabilities>) => Promise<T> | T,
  config: LockConfig & { acquisition?: AcquisitionOptions | undefined },
): Promise<T>;
// Async, so that every error is a rejection.
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
