/** The core's pure functions: keys, lock ids, fences, times, and when to try again. */

import { addon, callAddon } from "./addon.js";
import { LockError, type LockErrorCode } from "./errors.js";
import type { RetryPolicy } from "./exports.js";

/**
 * Refuses what is not well-formed text. Lone surrogates would all become U+FFFD on the way to a store, so that two keys
 * would be one.
 */
function checkText(text: unknown, name: string): asserts text is string {
  if (typeof text !== "string") {
    throw new LockError("InvalidArgument", `${name} must be a string`);
  }
  if (!text.isWellFormed()) {
    throw new LockError("InvalidArgument", `${name} must be well-formed Unicode`);
  }
}

export const core = {
  normalizeAndValidateKey(key: string): string {
    checkText(key, "Key");
    return callAddon(() => addon.normalizeKey(key));
  },
  validateLockId(lockId: string): void {
    // For any other value, the name of its type stands in: it is no lock id either, and the error may show it.
    const text = typeof lockId === "string" ? lockId : lockId ? typeof lockId : "";
    callAddon(() => addon.validateLockId(text));
  },
  validateTtl(ttlMs: number): void {
    // NaN stands for whatever is not a number: neither is a TTL.
    callAddon(() => addon.validateTtl(typeof ttlMs === "number" ? ttlMs : NaN));
  },
  validateOwner(owner: string): void {
    checkText(owner, "owner");
    callAddon(() => addon.validateOwner(owner));
  },
  generateLockId: (): string => callAddon(() => addon.generateLockId()),
  hashKey: (value: string): string => callAddon(() => addon.hashKey(value)),
  makeStorageKey(prefix: string, key: string, limitBytes: number, reserveBytes: number): string {
    checkText(prefix, "Prefix");
    checkText(key, "Key");
    return callAddon(() => addon.makeStorageKey(prefix, key, limitBytes, reserveBytes));
  },
  formatFence: (decimal: string): string => callAddon(() => addon.formatFence(decimal)),
  isFenceNearLimit: (fence: string): boolean => callAddon(() => addon.isFenceNearLimit(fence)),
  isLive: (expiresAtMs: number, nowMs: number, toleranceMs: number): boolean =>
    callAddon(() => addon.isLive(expiresAtMs, nowMs, toleranceMs)),
  redisServerTimeMs: (seconds: number, microseconds: number): number =>
    callAddon(() => addon.redisServerTimeMs(seconds, microseconds)),

  /** Decides when one `lock()` tries again: see `RetryState` in `exports.ts`. */
  createRetryState(policy: RetryPolicy) {
    const { maxRetries, retryDelayMs, backoff, jitter, timeoutMs } = policy;
    const state = callAddon(
      () => new addon.RetryState(maxRetries, retryDelayMs, backoff, jitter, timeoutMs),
    );
    return {
      after: (
        failedWith: LockErrorCode | null,
        elapsedMs: number,
        random: number,
        isHinted: boolean,
      ) => callAddon(() => state.after(failedWith, elapsedMs, random, isHinted)),
      attemptTimeoutMs: (elapsedMs: number) => state.attemptTimeoutMs(elapsedMs),
      isCut: (failedWith: LockErrorCode, elapsedMs: number) => state.isCut(failedWith, elapsedMs),
    };
  },
};
