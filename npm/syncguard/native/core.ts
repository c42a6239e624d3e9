/** The core's pure functions: keys, lock ids, fences, times, and when to try again. */

import { addon, callAddon } from "./addon.js";
import { LockError, type LockErrorCode } from "./errors.js";

export type RetryPolicy = {
  maxRetries: number;
  retryDelayMs: number;
  backoff: string;
  jitter: string;
  timeoutMs: number;
};

/**
 * Refuses what is no text. Surrogates without their other half become U+FFFD on the way to a store, all of them alike, so that
 * two keys would be one.
 */
function checkText(text: unknown, name: string): asserts text is string {
  if (typeof text !== "string") {
    throw new LockError("InvalidArgument", `${name} must be a string`);
  }
  if (!text.isWellFormed()) {
    throw new LockError("InvalidArgument", `${name} must be well-formed Unicode`);
  }
}

/** When to try again: the core's rules, for one acquisition. */
export interface Acquisition {
  /**
   * After an attempt that gave no lock (`failedWith` null: contention): the milliseconds to wait; or, when a failure
   * is to be reported, what to add to its message. Throws `AcquisitionTimeout` when others held the lock for too long.
   */
  after(failedWith: LockErrorCode | null, elapsedMs: number, random: number): number | string;
  /** How long the next attempt may take. */
  attemptTimeoutMs(elapsedMs: number): number;
  /** Whether a failure says less than one before it, which is then to be reported. */
  isCut(failedWith: LockErrorCode, elapsedMs: number): boolean;
}

export const core = {
  ...addon.constants(),

  normalizeAndValidateKey(key: string): string {
    checkText(key, "Key");
    return callAddon(() => addon.normalizeKey(key));
  },
  validateLockId(lockId: string): void {
    if (typeof lockId !== "string") {
      const got = lockId ? typeof lockId : "empty/null";
      throw new LockError(
        "InvalidArgument",
        `Invalid lockId format. Expected 22 base64url characters, got: ${got}`,
      );
    }
    callAddon(() => addon.validateLockId(lockId));
  },
  validateTtl(ttlMs: number): void {
    if (typeof ttlMs !== "number") {
      throw new LockError("InvalidArgument", "ttlMs must be a positive integer");
    }
    callAddon(() => addon.validateTtl(ttlMs));
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

  createAcquisition(policy: RetryPolicy): Acquisition {
    const { maxRetries, retryDelayMs, backoff, jitter, timeoutMs } = policy;
    const rules = callAddon(
      () => new addon.Acquisition(maxRetries, retryDelayMs, backoff, jitter, timeoutMs),
    );
    return {
      after: (failedWith, elapsedMs, random) =>
        callAddon(() => rules.after(failedWith, elapsedMs, random)),
      attemptTimeoutMs: (elapsedMs) => rules.attemptTimeoutMs(elapsedMs),
      isCut: (failedWith, elapsedMs) => rules.isCut(failedWith, elapsedMs),
    };
  },
};
