/** `syncguard/common`: everything that needs no particular backend, for those who write one. */

export {
  BACKEND_DEFAULTS,
  BACKEND_LIMITS,
  FENCE_THRESHOLDS,
  LOCK_DEFAULTS,
  MAX_KEY_LENGTH_BYTES,
  RESERVE_BYTES,
  TIME_TOLERANCE_MS,
} from "./constants.js";
export {
  type AcquisitionPolicy,
  type BackendConfig,
  mergeAcquisitionConfig,
  mergeBackendConfig,
} from "./config.js";
export { setDefaultBackend } from "./default-backend.js";
export {
  attachRawData,
  getById,
  getByIdRaw,
  getByKey,
  getByKeyRaw,
  type LookupOptions,
  owns,
  type RawIdentifiers,
  type RawLockData,
  sanitizeLockInfo,
} from "./diagnostics.js";
export { LockError, type LockErrorCode, type LockErrorContext } from "./errors.js";
export { formatFence, hasFence, logFenceWarning } from "./fence.js";
export { acquireHandle, createDisposableHandle, decorateAcquireResult } from "./handle.js";
export {
  generateLockId,
  hashKey,
  makeStorageKey,
  normalizeAndValidateKey,
  validateLockId,
} from "./keys.js";
export { createAutoLock, lock } from "./lock.js";
export {
  FAILURE_REASON,
  mapBackendObservation,
  mapFirestoreConditions,
  mapRedisScriptResult,
  mapToMutationResult,
  type MutationCondition,
  type MutationReason,
  type MutationResult,
} from "./mutation.js";
export { checkAborted, delay } from "./signal.js";
export { withTelemetry } from "./telemetry.js";
export { calculateRedisServerTimeMs, isLive } from "./time.js";
export type {
  AcquireOk,
  AcquireResult,
  AcquisitionOptions,
  AsyncLock,
  BackendCapabilities,
  BackendLockOptions,
  BoundLock,
  CommonBackendOptions,
  DecoratedAcquireResult,
  DisposableLockHandle,
  ExtendResult,
  Fence,
  FencingCapabilities,
  HashId,
  HeldLock,
  KeyLookup,
  KeyOp,
  LockBackend,
  LockBackendLike,
  LockConfig,
  LockEvent,
  LockHandle,
  LockInfo,
  LockInfoDebug,
  LockOp,
  OnReleaseError,
  OwnershipLookup,
  ReleaseResult,
  SyncGuardBackend,
  TelemetryOptions,
} from "./types.js";
