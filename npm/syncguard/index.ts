/** `syncguard` */

export {
  BACKEND_DEFAULTS,
  BACKEND_LIMITS,
  FENCE_THRESHOLDS,
  LOCK_DEFAULTS,
  MAX_KEY_LENGTH_BYTES,
  RESERVE_BYTES,
  TIME_TOLERANCE_MS,
} from "./lock/constants.js";
export { setDefaultBackend } from "./default/backend.js";
export {
  getById,
  getByIdRaw,
  getByKey,
  getByKeyRaw,
  type LookupOptions,
  owns,
  type RawLockData,
  sanitizeLockInfo,
} from "./lock/diagnostics.js";
export { LockError, type LockErrorCode, type LockErrorContext } from "./native/errors.js";
export { hasFence } from "./lock/fence.js";
export { acquireHandle, decorateAcquireResult } from "./lock/handle.js";
export {
  generateLockId,
  hashKey,
  makeStorageKey,
  normalizeAndValidateKey,
  validateLockId,
} from "./lock/keys.js";
export { lock } from "./lock/lock.js";
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

export { createFirestoreBackend } from "./firestore.js";
export { createPostgresBackend } from "./postgres/backend.js";
export { createRedisBackend } from "./redis/backend.js";
export { createSqliteBackend } from "./sqlite/backend.js";
