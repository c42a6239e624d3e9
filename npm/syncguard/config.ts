import { BACKEND_DEFAULTS, LOCK_DEFAULTS } from "./constants.js";
import type { AcquisitionOptions } from "./types.js";

/** How to wait: every setting has a value, but there may be no signal. */
export type AcquisitionPolicy = {
  [Option in Exclude<keyof AcquisitionOptions, "signal">]-?: NonNullable<
    AcquisitionOptions[Option]
  >;
} & Pick<AcquisitionOptions, "signal">;

/** What backends take from their caller where it says something. */
export interface BackendConfig {
  /** Milliseconds after which a lock ends by itself. Default 30000. */
  ttlMs?: number | undefined;
}

/** The options with the defaults of `lock()` where they say nothing, and the signal as it was given. */
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

/** The options with the defaults of backends where they say nothing. */
export function mergeBackendConfig(config?: BackendConfig): { ttlMs: number } {
  return { ttlMs: config?.ttlMs ?? BACKEND_DEFAULTS.ttlMs };
}
