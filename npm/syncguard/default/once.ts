import { checkBackend } from "../values/arguments.js";
import { type OnceWork, runOnce } from "../backend/once.js";
import type {
  BackendCapabilities,
  FencingCapabilities,
  LockBackendLike,
  OnceOptions,
  OnceResult,
} from "../values/types.js";
import { getDefaultBackend } from "./backend.js";

/**
 * As `backend.once()`: runs `fn` once for each period, by whoever comes first.
 *
 * @param backend - where the lock is kept; one of this package, or a wrapper of one
 * @param key - names what is to be done
 * @param options - for which period, and how to take the lock
 * @param fn - does it; what it returns is the `value` of the result
 * @throws LockError `LockLost` if the lock was lost before it was done; `InvalidArgument` also for a backend that cannot store what is
 *   done; or the store's error. What `fn` throws is thrown.
 * @example
 * ```ts
 * import { once } from "syncguard";
 * import { createRedisBackend } from "syncguard/redis";
 *
 * const backend = createRedisBackend("redis://localhost:6379");
 * await once(backend, "migration", { due: 42 }, ({ fence }) => console.log("to version 42 under fence", fence));
 * ```
 */
export function once<T, C extends BackendCapabilities = BackendCapabilities>(
  backend: LockBackendLike<C>,
  key: string,
  options: OnceOptions,
  fn: OnceWork<T, C>,
): Promise<OnceResult<T>>;
/**
 * On the default backend, as that of `lock()`.
 *
 * @example
 * ```ts
 * import { once } from "syncguard";
 *
 * await once("nightly-report", { due: "2026-11-24" }, () => console.log("writing the report"));
 * ```
 */
export function once<T>(
  key: string,
  options: OnceOptions,
  fn: OnceWork<T, FencingCapabilities>,
): Promise<OnceResult<T>>;
// Async, so that every error is a rejection.
export async function once<T, C extends BackendCapabilities>(
  first: LockBackendLike<C> | string,
  second: string | OnceOptions,
  third: OnceOptions | OnceWork<T, FencingCapabilities>,
  fourth?: OnceWork<T, C>,
): Promise<OnceResult<T>> {
  if (typeof first === "string") {
    const work = third as OnceWork<T, FencingCapabilities>;
    return await runOnce(getDefaultBackend(), first, second as OnceOptions, work);
  }
  checkBackend(first);
  const [key, options] = [second as string, third as OnceOptions];
  return await runOnce(first, key, options, fourth as OnceWork<T, C>);
}
