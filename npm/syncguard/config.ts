import { BACKEND_DEFAULTS, LOCK_DEFAULTS } from "./constants.js";
import type { AcquisitionOptions } from "./types.js";

/** How to wait, with nothing left open. */
export type AcquisitionPolicy = {
  [Option in Exclude<keyof AcquisitionOptions, "signal">]-?: NonNullable<
    AcquisitionOptions[Option]
  >;
};

/** The options with the defaults of `lock()` where they say nothing. */
export function mergeAcquisitionConfig(
  options?: AcquisitionOptions,
  defaults: AcquisitionPolicy = LOCK_DEFAULTS,
): AcquisitionPolicy {
  return {
    maxRetries: options?.maxRetries ?? defaults.maxRetries,
    retryDelayMs: options?.retryDelayMs ?? defaults.retryDelayMs,
    backoff: options?.backoff ?? defaults.backoff,
    jitter: options?.jitter ?? defaults.jitter,
    timeoutMs: options?.timeoutMs ?? defaults.timeoutMs,
  };
}

/** The options with the defaults of backends; where an option is `undefined`, the default stays. */
export function mergeBackendConfig<Options extends object>(
  options?: Options,
): Options & { ttlMs: number };
/** The options with `defaults`; where an option is `undefined`, the default stays. */
export function mergeBackendConfig<Options extends object, Defaults extends object>(
  options: Options | undefined,
  defaults: Defaults,
): Options & Defaults;
export function mergeBackendConfig(
  options: object = {},
  defaults: object = BACKEND_DEFAULTS,
): object {
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  return { ...defaults, ...Object.fromEntries(given) };
}
