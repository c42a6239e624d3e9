/** `syncguard/common`: everything that needs no particular backend, for those who write one. */

export {
  BACKEND_DEFAULTS,
  BACKEND_LIMITS,
  FENCE_THRESHOLDS,
  LOCK_DEFAULTS,
  MAX_KEY_LENGTH_BYTES,
  RESERVE_BYTES,
  TIME_TOLERANCE_MS,
} from "./lock/constants.js";
export {
  type AcquisitionPolicy,
  type BackendConfig,
  mergeAcquisitionConfig,
  mergeBackendConfig,
} from "./lock/config.js";
export { setDefaultBackend } from "./default/backend.js";
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
} from "./lock/diagnostics.js";
export { LockError, type LockErrorCode, type LockErrorContext } from "./native/errors.js";
export { formatFence, hasFence, logFenceWarning } from "./lock/fence.js";
export { acquireHandle, createDisposableHandle, decorateAcquireResult } from "./lock/handle.js";
export {
  generateLockId,
  hashKey,
  makeStorageKey,
  normalizeAndValidateKey,
  validateLockId,
} from "./lock/keys.js";
export { createAutoLock, lock } from "./lock/lock.js";
export {
  FAILURE_REASON,
  mapBackendObservation,
  mapFirestoreConditions,
  mapRedisScriptResult,
  mapToMutationResult,
  type MutationCondition,
  type MutationReason,
  type MutationResult,
} from "./lock/mutation.js";
export { checkAborted, delay } from "./native/signal.js";
export { withTelemetry } from "./lock/telemetry.js";
export { calculateRedisServerTimeMs, isLive } from "./lock/time.js";
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
} from "./lock/types.js";
