/** `syncguard/common`: what does not depend on a particular backend, for authors of backends. */

export { setDefaultBackend } from "./default/backend.js";
export { lead } from "./default/lead.js";
export { lock } from "./default/lock.js";
export { once } from "./default/once.js";
export {
  type AcquisitionPolicy,
  BACKEND_DEFAULTS,
  BACKEND_LIMITS,
  type BackendConfig,
  FENCE_THRESHOLDS,
  LOCK_DEFAULTS,
  MAX_KEY_LENGTH_BYTES,
  mergeAcquisitionConfig,
  mergeBackendConfig,
  RESERVE_BYTES,
  TIME_TOLERANCE_MS,
} from "./values/defaults.js";
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
} from "./watching/diagnostics.js";
export { acquireHandle, createDisposableHandle, decorateAcquireResult } from "./holding/handle.js";
export { createAutoLock } from "./backend/lock.js";
export {
  FAILURE_REASON,
  mapBackendObservation,
  mapFirestoreConditions,
  mapRedisScriptResult,
  mapToMutationResult,
  type MutationCondition,
  type MutationReason,
  type MutationResult,
} from "./values/mutation.js";
export { calculateRedisServerTimeMs, isLive, makeStorageKey } from "./values/stores.js";
export { withTelemetry } from "./backend/telemetry.js";
export type {
  AcquireOk,
  AcquireResult,
  AcquisitionOptions,
  AsyncLock,
  AutoExtend,
  AutoExtendOptions,
  BackendCapabilities,
  BackendLockOptions,
  BoundLock,
  ClosableLock,
  CommonBackendOptions,
  DecoratedAcquireResult,
  DiagnosticsMessage,
  DisposableLockHandle,
  ExtendResult,
  Fence,
  FencingCapabilities,
  HashId,
  HeldLock,
  KeyLookup,
  KeyOp,
  Leadership,
  LeadOptions,
  LockBackend,
  LockBackendLike,
  LockConfig,
  LockEvent,
  LockHandle,
  LockInfo,
  LockInfoDebug,
  LockOp,
  OnLeadError,
  OnceHandle,
  OnceMethod,
  OnceOptions,
  OnceResult,
  OnLost,
  OnReleaseError,
  OwnershipLookup,
  ReleaseAllOptions,
  ReleaseAllResult,
  ReleaseResult,
  SyncGuardBackend,
  TelemetryOptions,
  TryLockMethod,
  TryLockOptions,
  TryLockResult,
} from "./values/types.js";
export type { BackendTransport } from "./options/backend-transport.js";
export {
  formatFence,
  generateLockId,
  hasFence,
  hashKey,
  logFenceWarning,
  normalizeAndValidateKey,
  validateLockId,
} from "./values/values.js";
export { LockError, type LockErrorCode, type LockErrorContext } from "./native/errors.js";
export { checkAborted, delay } from "./native/signal.js";
