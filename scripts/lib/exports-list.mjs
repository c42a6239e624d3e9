// The documented exports of every entry point. A name that is not here is not public.

const words = (text) => text.trim().split(/\s+/);

const helperValues = words(`
  LockError lock acquireHandle decorateAcquireResult withTelemetry
  getByKey getById getByKeyRaw getByIdRaw owns hasFence sanitizeLockInfo
  validateLockId normalizeAndValidateKey generateLockId hashKey makeStorageKey isLive
  calculateRedisServerTimeMs TIME_TOLERANCE_MS BACKEND_DEFAULTS BACKEND_LIMITS FENCE_THRESHOLDS
  LOCK_DEFAULTS MAX_KEY_LENGTH_BYTES RESERVE_BYTES setDefaultBackend
`);

const helperTypes = words(`
  AcquireOk AcquireResult AcquisitionOptions AsyncLock AutoExtend AutoExtendOptions BackendCapabilities
  DisposableLockHandle
  ExtendResult Fence HashId KeyLookup KeyOp LockBackend LockConfig LockEvent LockInfo LockInfoDebug
  LockOp OnReleaseError OwnershipLookup ReleaseAllOptions ReleaseAllResult ReleaseResult TelemetryOptions
  BackendLockOptions BackendTransport BoundLock ClosableLock CommonBackendOptions OnLost DecoratedAcquireResult DiagnosticsMessage FencingCapabilities HeldLock
  LockBackendLike LockErrorCode LockErrorContext LockHandle LookupOptions RawLockData SyncGuardBackend
`);

export const DOCUMENTED = {
  ".": {
    values: [
      ...helperValues,
      ...words(
        "createRedisBackend createPostgresBackend createFirestoreBackend createSqliteBackend",
      ),
    ],
    types: helperTypes,
  },
  "./common": {
    values: [
      ...helperValues,
      ...words(`
        FAILURE_REASON attachRawData checkAborted createAutoLock createDisposableHandle delay
        formatFence logFenceWarning mapBackendObservation mapFirestoreConditions
        mapRedisScriptResult mapToMutationResult mergeAcquisitionConfig mergeBackendConfig
      `),
    ],
    types: [
      ...helperTypes,
      ...words(
        "AcquisitionPolicy BackendConfig MutationCondition MutationReason MutationResult RawIdentifiers",
      ),
    ],
  },
  "./redis": {
    values: words("createRedisBackend createLock"),
    types: words(`
      RedisBackendOptions RedisCapabilities LockData RedisConfig
      RedisClient RedisClusterNode RedisConnectionOptions RedisTlsOptions
    `),
  },
  "./postgres": {
    values: words("createPostgresBackend createLock setupSchema"),
    types: words(`
      PostgresBackendOptions PostgresCapabilities PostgresConfig
      PgClient PostgresClient PostgresConnectionOptions PostgresJsClient PostgresSchemaOptions PostgresSslOptions
    `),
  },
  "./firestore": {
    values: words("createFirestoreBackend createLock"),
    types: words(`
      FirestoreBackendOptions FirestoreCapabilities FirestoreConfig LockDocument
      FirestoreClient FirestoreConnectionOptions
    `),
  },
  "./sqlite": {
    values: words("createSqliteBackend createLock"),
    types: words("SqliteBackendOptions SqliteCapabilities"),
  },
  "./otel": { values: ["instrument"], types: ["InstrumentOptions"] },
  "./testing": {
    values: words("createTestBackend TestClock"),
    types: words(
      "Clock FaultyOperation TestBackend TestBackendOptions TestCapabilities TestFaults Timer",
    ),
  },
  "./forrst": {
    values: words("createAtomicLock"),
    types: words(`
      AtomicLock AtomicLockCallOptions AtomicLockFunction AtomicLockFunctionName AtomicLockHandle
      AtomicLockOptions ForrstError ForrstExtension ForrstRequest ForrstResponse
    `),
  },
};
