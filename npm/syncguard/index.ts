/** `syncguard` */

import "./native/required.js";

export { setDefaultBackend } from "./default/backend.js";
export { lead } from "./default/lead.js";
export { lock } from "./default/lock.js";
export { once } from "./default/once.js";
export { createFirestoreBackend } from "./firestore/backend.js";
export {
  BACKEND_DEFAULTS,
  BACKEND_LIMITS,
  FENCE_THRESHOLDS,
  LOCK_DEFAULTS,
  MAX_KEY_LENGTH_BYTES,
  RESERVE_BYTES,
  TIME_TOLERANCE_MS,
} from "./values/defaults.js";
export {
  getById,
  getByIdRaw,
  getByKey,
  getByKeyRaw,
  type LookupOptions,
  owns,
  type RawLockData,
  sanitizeLockInfo,
} from "./watching/diagnostics.js";
export { acquireHandle, decorateAcquireResult } from "./holding/handle.js";
export { calculateRedisServerTimeMs, isLive, makeStorageKey } from "./values/stores.js";
export { withTelemetry } from "./backend/telemetry.js";
export type {
  AcquireMethod,
  AcquireOk,
  AcquireOptions,
  AcquireResult,
  AcquisitionOptions,
  AsyncLock,
  AutoExtend,
  AutoExtendOptions,
  BackendCapabilities,
  BackendLockOptions,
  BoundLock,
  Claim,
  Claims,
  ClosableLock,
  CommonBackendOptions,
  DecoratedAcquireResult,
  DiagnosticsMessage,
  DisposableLockHandle,
  ExtendResult,
  Fence,
  FencingCapabilities,
  GrantedLock,
  HashId,
  HeldLock,
  HeldLocks,
  HeldSlot,
  KeyLookup,
  KeyOp,
  Leadership,
  LeadOptions,
  LockBackend,
  LockBackendLike,
  LockConfig,
  LockConfigOf,
  LockEvent,
  LockHandle,
  LockInfo,
  LockInfoDebug,
  LockMethod,
  LockMode,
  LockOp,
  LockSet,
  LocksHandle,
  LocksOp,
  OnLeadError,
  OfSlot,
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
  ModeClaim,
  SlotClaim,
  SlotHandle,
  StoreMembers,
  SyncGuardBackend,
  SlotConfig,
  TelemetryOptions,
  TryLockMethod,
  TryLockOptions,
  TryLockResult,
} from "./values/types.js";
export type { FirestoreDone, FirestoreGuard, FirestoreTransaction } from "./firestore/members.js";
export type { BackendTransport } from "./options/backend-transport.js";
export type {
  GuardQuery,
  PostgresDone,
  PostgresGuard,
  PostgresTransaction,
} from "./postgres/members.js";
export type { RedisEvalOptions, RedisGuard, RedisReply } from "./redis/members.js";
export {
  generateLockId,
  hasFence,
  hashKey,
  normalizeAndValidateKey,
  validateLockId,
} from "./values/values.js";
export { LockError, type LockErrorCode, type LockErrorContext } from "./native/errors.js";
export { createPostgresBackend } from "./postgres/backend.js";
export { createRedisBackend } from "./redis/backend.js";
export { createSqliteBackend } from "./sqlite/backend.js";
