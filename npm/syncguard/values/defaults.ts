import { constants } from "../native/constants.js";
import type { AcquisitionOptions } from "./types.js";

/** How long after its end a lock still counts as held, in milliseconds: a margin for clocks that differ. */
export const TIME_TOLERANCE_MS = constants.timeToleranceMs;

/** The longest key, in bytes of UTF-8 after NFC normalisation. */
export const MAX_KEY_LENGTH_BYTES = constants.maxKeyLengthBytes;

/** The defaults of helpers for backends, in milliseconds. */
export const BACKEND_DEFAULTS = Object.freeze({ ttlMs: constants.defaultTtlMs });

/** How `lock()` waits by default; times in milliseconds. */
export const LOCK_DEFAULTS = Object.freeze(constants.retry);

/** Fences above `WARN` are reported with a warning; above `MAX`, none are granted. Compare them as strings. */
export const FENCE_THRESHOLDS = Object.freeze({
  MAX: constants.fenceMax,
  WARN: constants.fenceWarn,
});

const { redis, postgres, firestore } = constants.storageKeys;

/** The longest storage key of each store, in bytes; for `makeStorageKey`. */
export const BACKEND_LIMITS = Object.freeze({
  REDIS: redis.limitBytes,
  POSTGRES: postgres.limitBytes,
  FIRESTORE: firestore.limitBytes,
} as const);

/** The bytes of a storage key that each store reserves for derived keys; for `makeStorageKey`. */
export const RESERVE_BYTES = Object.freeze({
  REDIS: redis.reserveBytes,
  POSTGRES: postgres.reserveBytes,
  FIRESTORE: firestore.reserveBytes,
} as const);

/** How to wait: every setting has a value, except that there may be no signal. */
export type AcquisitionPolicy = {
  [
    Option in Exclude<keyof AcquisitionOptions, "signal" | "wait" | "maxRetryDelayMs">
  ]-?: NonNullable<AcquisitionOptions[Option]>;
} & Pick<AcquisitionOptions, "signal">;

/** The options that override the defaults of a backend. */
export interface BackendConfig {
  /** Milliseconds after which a lock ends by itself. Default 30000. */
  ttlMs?: number | undefined;
}

/**
 * The options, with the defaults of `lock()` filled in and the signal unchanged.
 *
 * @example
 * ```ts
 * import { mergeAcquisitionConfig } from "syncguard/common";
 *
 * const policy = mergeAcquisitionConfig({ timeoutMs: 60_000 });
 * console.log(policy.timeoutMs, policy.maxRetries); // 60000 10
 * ```
 */
export function mergeAcquisitionConfig(options?: AcquisitionOptions): AcquisitionPolicy {
  return {
    maxRetries: options?.maxRetries ?? LOCK_DEFAULTS.maxRetries,
    retryDelayMs: options?.retryDelayMs ?? LOCK_DEFAULTS.retryDelayMs,
    backoff: options?.backoff ?? LOCK_DEFAULTS.backoff,
    jitter: options?.jitter ?? LOCK_DEFAULTS.jitter,
    timeoutMs: options?.timeoutMs ?? LOCK_DEFAULTS.timeoutMs,
    signal: options?.signal,
  };
}

/**
 * The options, with the defaults of backends filled in.
 *
 * @example
 * ```ts
 * import { mergeBackendConfig } from "syncguard/common";
 *
 * console.log(mergeBackendConfig().ttlMs); // 30000
 * ```
 */
export function mergeBackendConfig(config?: BackendConfig): {
  /** Milliseconds after which a lock ends by itself. */
  ttlMs: number;
} {
  return { ttlMs: config?.ttlMs ?? BACKEND_DEFAULTS.ttlMs };
}
