/** Checks of what callers hand in, for code that does not reach the core first. */

import { checkTtl } from "../lock/arguments.js";
import { LockError } from "../native/errors.js";
import { BACKEND_DEFAULTS } from "../lock/constants.js";
import type { BackendCapabilities, LockBackendLike, OnReleaseError } from "../lock/types.js";

/** An `InvalidArgument` error. */
export function invalid(message: string): LockError {
  return new LockError("InvalidArgument", message);
}

/** Refuses anything but a function. */
export function checkFunction(value: unknown, name: string): void {
  if (typeof value !== "function") throw invalid(`${name} must be a function`);
}

/** Refuses anything but an object; arrays and functions are none. */
export function checkObject(value: unknown, name: string): asserts value is object {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw invalid(`${name} must be an object`);
  }
}

/** The TTL to use: the default if none is given. */
export function resolveTtl(ttlMs: number | null | undefined): number {
  if (ttlMs === undefined || ttlMs === null) return BACKEND_DEFAULTS.ttlMs;
  checkTtl(ttlMs);
  return ttlMs;
}

/** The options that were given: members that are `null` count as not given, and so does `null` for all of them. */
export function withoutNulls<Options extends object>(options: Options): Options {
  if ((options as unknown) === null) return {} as Options;
  checkObject(options, "options");
  const given = Object.entries(options).filter(([, value]) => value !== null);
  return Object.fromEntries(given) as Options;
}

/** Refuses what disposal cannot use. */
export function checkDisposal(
  onReleaseError: OnReleaseError | undefined,
  disposeTimeoutMs: number | undefined,
): void {
  if (onReleaseError !== undefined) checkFunction(onReleaseError, "onReleaseError");
  if (
    disposeTimeoutMs !== undefined &&
    (typeof disposeTimeoutMs !== "number" || !(disposeTimeoutMs > 0))
  ) {
    throw invalid("disposeTimeoutMs must be a positive number");
  }
}

/** Refuses what has not the methods of a backend. */
export function checkBackend<C extends BackendCapabilities>(backend: LockBackendLike<C>): void {
  const given = backend as Partial<LockBackendLike<C>> | null | undefined;
  if (typeof given?.acquire !== "function" || typeof given.release !== "function") {
    throw invalid("backend must be a LockBackend");
  }
}
