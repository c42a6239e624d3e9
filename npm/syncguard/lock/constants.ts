import { core } from "../native/core.js";

/** How long past its end a lock still counts as held, in milliseconds: allows for clocks that differ. */
export const TIME_TOLERANCE_MS: 1000 = core.timeToleranceMs;

/** The longest key, in bytes of UTF-8 after NFC normalisation. */
export const MAX_KEY_LENGTH_BYTES: 512 = core.maxKeyLengthBytes;

/** What helpers assume where the caller says nothing; milliseconds. */
export const BACKEND_DEFAULTS: Readonly<{ ttlMs: 30_000 }> = Object.freeze({
  ttlMs: core.defaultTtlMs,
});

/** How `lock()` waits where the caller says nothing; times in milliseconds. */
export const LOCK_DEFAULTS = Object.freeze({
  maxRetries: 10,
  retryDelayMs: 100,
  timeoutMs: 5_000,
  backoff: "exponential",
  jitter: "equal",
} as const);

/** Fences past `WARN` are reported; past `MAX` none are given out. Compare them as strings. */
export const FENCE_THRESHOLDS: Readonly<{
  MAX: "900000000000000";
  WARN: "090000000000000";
}> = Object.freeze({ MAX: core.fenceMax, WARN: core.fenceWarn });

/** The longest storage key of each store, in bytes; for `makeStorageKey`. */
export const BACKEND_LIMITS = Object.freeze({
  REDIS: 1000,
  POSTGRES: 1700,
  FIRESTORE: 1500,
} as const);

/** Bytes of a storage key that each store keeps for derived keys; for `makeStorageKey`. */
export const RESERVE_BYTES = Object.freeze({
  REDIS: 26,
  POSTGRES: 0,
  FIRESTORE: 0,
} as const);
