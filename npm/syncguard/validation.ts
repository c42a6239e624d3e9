/** Checks of what callers hand in, for code that does not reach the native part first. */

import { LockError } from "./errors.js";
import { BACKEND_DEFAULTS } from "./constants.js";
import type { BackendCapabilities, LockBackend, OnReleaseError } from "./types.js";

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

/** Refuses what is given and is no `AbortSignal`. */
export function checkSignal(signal: AbortSignal | undefined, name: string): void {
  if (signal === undefined) return;
  const given = signal as Partial<AbortSignal> | null;
  if (typeof given?.addEventListener !== "function" || typeof given.aborted !== "boolean") {
    throw invalid(`${name} must be an AbortSignal`);
  }
}

/** The TTL to use: the default if none is given. */
export function resolveTtl(ttlMs: number | undefined): number {
  if (ttlMs === undefined) return BACKEND_DEFAULTS.ttlMs;
  if (!Number.isInteger(ttlMs) || ttlMs <= 0) throw invalid("ttlMs must be a positive integer");
  return ttlMs;
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
export function checkBackend<C extends BackendCapabilities>(backend: LockBackend<C>): void {
  const given = backend as Partial<LockBackend<C>> | null | undefined;
  if (typeof given?.acquire !== "function" || typeof given.release !== "function") {
    throw invalid("backend must be a LockBackend");
  }
}
