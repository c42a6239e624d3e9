/** What the core says of itself, made by `npm run build` from crates/syncguard-node: do not edit. */

export const constants = {
  version: "3.0.0-alpha.1",
  timeToleranceMs: 1000,
  maxKeyLengthBytes: 512,
  lockIdLength: 22,
  fenceDigits: 15,
  fenceMax: "900000000000000",
  fenceWarn: "090000000000000",
  defaultTtlMs: 30000,
  maxTtlMs: 315576000000000,
  maxOwnerBytes: 255,
  retry: {
    maxRetries: 10,
    retryDelayMs: 100,
    timeoutMs: 5000,
    backoff: "exponential",
    jitter: "equal",
  },
  maxRetryDelayMs: 5000,
  storageKeys: {
    redis: { limitBytes: 1000, reserveBytes: 26 },
    postgres: { limitBytes: 1700, reserveBytes: 0 },
    firestore: { limitBytes: 1500, reserveBytes: 0 },
  },
  errorCodes: [
    "ServiceUnavailable",
    "AuthFailed",
    "InvalidArgument",
    "RateLimited",
    "NetworkTimeout",
    "AcquisitionTimeout",
    "LockLost",
    "Aborted",
    "Internal",
  ],
  completionWidth: 8,
} as const;
