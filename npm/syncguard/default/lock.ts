import { checkBackend } from "../values/arguments.js";
import { type Config, keyElsewhere, runLocked, type Work } from "../backend/lock.js";
import type {
  BackendCapabilities,
  Claim,
  Claims,
  FencingCapabilities,
  LockBackendLike,
  LockConfig,
  LockConfigOf,
  LockHandle,
  LocksHandle,
  SlotConfig,
  SlotHandle,
} from "../values/types.js";
import { getDefaultBackend } from "./backend.js";

/**
 * Waits for the lock, runs `fn` while it is held, and frees it whatever `fn` did.
 *
 * @param backend - where the lock is kept
 * @param fn - runs once the lock is held; what it returns or throws is what `lock` gives
 * @param config - which lock, and how to wait
 * @throws LockError `AcquisitionTimeout` if others held it for too long; `Aborted` if a signal ended the waiting; `LockLost` with
 *   `config.throwIfLost`; or the backend's error. A failed release is reported to `config.onReleaseError` and never replaces the result of `fn`.
 * @example
 * ```ts
 * import { lock } from "syncguard";
 * import { createRedisBackend } from "syncguard/redis";
 *
 * const backend = createRedisBackend("redis://localhost:6379");
 * const total = await lock(
 *   backend,
 *   async ({ fence, assertHeld }) => {
 *     assertHeld(); // directly before each effect: the lock may be lost
 *     console.log("working under fence", fence);
 *     return 42;
 *   },
 *   { key: "report:nightly", ttlMs: 30_000, acquisition: { timeoutMs: 10_000 } },
 * );
 * ```
 */
export function lock<T, C extends BackendCapabilities = BackendCapabilities>(
  backend: LockBackendLike<C>,
  fn: (handle: LockHandle<C>) => Promise<T> | T,
  config: LockConfig,
): Promise<T>;
/**
 * Under one slot of a key, on a backend of this package.
 *
 * @example
 * ```ts
 * import { lock } from "syncguard";
 *
 * await lock(backend, ({ slot, fence }) => console.log("one of five: number", slot, "under fence", fence), {
 *   key: "api:partner",
 *   slots: 5,
 * });
 * ```
 */
export function lock<T, C extends BackendCapabilities = BackendCapabilities>(
  backend: LockBackendLike<C>,
  fn: (handle: SlotHandle<C>) => Promise<T> | T,
  config: SlotConfig,
): Promise<T>;
/**
 * Under several locks, all or nothing, on a backend of this package.
 *
 * @example
 * ```ts
 * import { lock } from "syncguard";
 *
 * await lock(backend, ({ fences }) => console.log("both accounts, under fences", [...fences.values()]), {
 *   key: ["account:1", "account:2"],
 *   ttlMs: 30_000,
 * });
 * ```
 */
export function lock<T, C extends BackendCapabilities = BackendCapabilities>(
  backend: LockBackendLike<C>,
  fn: (handle: LocksHandle<C>) => Promise<T> | T,
  config: LockConfigOf<Claims | Required<Claim>>,
): Promise<T>;
/**
 * Waits for the lock on the default backend, runs `fn` while it is held, and frees it whatever `fn` did. The default backend is
 * the one given to `setDefaultBackend()`, else the one that `SYNCGUARD_URL` names, else an SQLite database in the user's
 * state folder.
 *
 * Only processes of the same user on the same machine use that database, so its locks exclude neither other users nor
 * other machines. For those, use a backend on a server.
 *
 * @param fn - runs once the lock is held; what it returns or throws is what `lock` gives
 * @param config - which lock, and how to wait
 * @throws LockError `AcquisitionTimeout` if others held it for too long; `Aborted` if a signal ended the waiting;
 *   `InvalidArgument` also for a `SYNCGUARD_URL` that names no store; or the backend's error
 * @example
 * ```ts
 * import { lock } from "syncguard";
 *
 * await lock(() => console.log("writing"), { key: "report:nightly" });
 * ```
 */
export function lock<T>(fn: (handle: LockHandle) => Promise<T> | T, config: LockConfig): Promise<T>;
/**
 * Under one slot of a key, on the default backend.
 *
 * @example
 * ```ts
 * import { lock } from "syncguard";
 *
 * await lock(({ slot }) => console.log("one of five: number", slot), {
 *   key: "api:partner",
 *   slots: 5,
 * });
 * ```
 */
export function lock<T>(fn: (handle: SlotHandle) => Promise<T> | T, config: SlotConfig): Promise<T>;
/**
 * Under several locks, all or nothing, on the default backend.
 *
 * @example
 * ```ts
 * import { lock } from "syncguard";
 *
 * await lock(({ fences }) => console.log("both accounts, under fences", [...fences.values()]), {
 *   key: ["account:1", "account:2"],
 * });
 * ```
 */
export function lock<T>(
  fn: (handle: LocksHandle) => Promise<T> | T,
  config: LockConfigOf<Claims | Required<Claim>>,
): Promise<T>;
// Async, so that every error is a rejection.
export async function lock<T, C extends BackendCapabilities>(
  first: LockBackendLike<C> | ((handle: never) => Promise<T> | T),
  second: ((handle: never) => Promise<T> | T) | Config,
  third?: Config,
): Promise<T> {
  if (typeof first === "function") {
    const work = first as Work<T, FencingCapabilities>;
    return await runLocked(getDefaultBackend(), work, second as Config);
  }
  if (typeof first === "string") throw keyElsewhere();
  checkBackend(first);
  return await runLocked(first, second as Work<T, C>, third as Config);
}
