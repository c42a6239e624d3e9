// The whole public API, made by `npm run build:api`. Which entry point exports what:
//
// syncguard
//   AcquireOk AcquireResult AcquisitionOptions AsyncLock AutoExtend AutoExtendOptions
//   BACKEND_DEFAULTS BACKEND_LIMITS BackendCapabilities BackendLockOptions BoundLock
//   CommonBackendOptions DecoratedAcquireResult DisposableLockHandle ExtendResult FENCE_THRESHOLDS
//   Fence FencingCapabilities HashId HeldLock KeyLookup KeyOp LOCK_DEFAULTS LockBackend
//   LockBackendLike LockConfig LockError LockErrorCode LockErrorContext LockEvent LockHandle
//   LockInfo LockInfoDebug LockOp LookupOptions MAX_KEY_LENGTH_BYTES OnReleaseError OwnershipLookup
//   RESERVE_BYTES RawLockData ReleaseResult SyncGuardBackend TIME_TOLERANCE_MS TelemetryOptions
//   acquireHandle calculateRedisServerTimeMs createFirestoreBackend createPostgresBackend
//   createRedisBackend createSqliteBackend decorateAcquireResult generateLockId getById getByIdRaw
//   getByKey getByKeyRaw hasFence hashKey isLive lock makeStorageKey normalizeAndValidateKey owns
//   sanitizeLockInfo setDefaultBackend validateLockId withTelemetry
//
// syncguard/common
//   AcquireOk AcquireResult AcquisitionOptions AcquisitionPolicy AsyncLock AutoExtend
//   AutoExtendOptions BACKEND_DEFAULTS BACKEND_LIMITS BackendCapabilities BackendConfig
//   BackendLockOptions BoundLock CommonBackendOptions DecoratedAcquireResult DisposableLockHandle
//   ExtendResult FAILURE_REASON FENCE_THRESHOLDS Fence FencingCapabilities HashId HeldLock KeyLookup
//   KeyOp LOCK_DEFAULTS LockBackend LockBackendLike LockConfig LockError LockErrorCode
//   LockErrorContext LockEvent LockHandle LockInfo LockInfoDebug LockOp LookupOptions
//   MAX_KEY_LENGTH_BYTES MutationCondition MutationReason MutationResult OnReleaseError
//   OwnershipLookup RESERVE_BYTES RawIdentifiers RawLockData ReleaseResult SyncGuardBackend
//   TIME_TOLERANCE_MS TelemetryOptions acquireHandle attachRawData calculateRedisServerTimeMs
//   checkAborted createAutoLock createDisposableHandle decorateAcquireResult delay formatFence
//   generateLockId getById getByIdRaw getByKey getByKeyRaw hasFence hashKey isLive lock
//   logFenceWarning makeStorageKey mapBackendObservation mapFirestoreConditions mapRedisScriptResult
//   mapToMutationResult mergeAcquisitionConfig mergeBackendConfig normalizeAndValidateKey owns
//   sanitizeLockInfo setDefaultBackend validateLockId withTelemetry
//
// syncguard/redis
//   LockData RedisBackendOptions RedisCapabilities RedisClient RedisClusterNode RedisConfig
//   RedisConnectionOptions RedisTlsOptions createLock createRedisBackend
//
// syncguard/postgres
//   PgClient PostgresBackendOptions PostgresCapabilities PostgresClient PostgresConfig
//   PostgresConnectionOptions PostgresJsClient PostgresSchemaOptions PostgresSslOptions createLock
//   createPostgresBackend setupSchema
//
// syncguard/firestore
//   FirestoreBackendOptions FirestoreCapabilities FirestoreClient FirestoreConfig
//   FirestoreConnectionOptions LockDocument createFirestoreBackend createLock
//
// syncguard/sqlite
//   SqliteBackendOptions SqliteCapabilities createLock createSqliteBackend
//
// syncguard/forrst
//   AtomicLock AtomicLockCallOptions AtomicLockFunction AtomicLockFunctionName AtomicLockHandle
//   AtomicLockOptions ForrstError ForrstExtension ForrstRequest ForrstResponse createAtomicLock
//
// Below, the exports of the backends' entry points are in namespaces of their names.

/** A fencing token: 15 decimal digits, zero-padded, so that comparing strings compares numbers. */
type Fence = string;
/** 24 lower-case hexadecimal digits by which a key or a lock id can be recognised. Not secure: see `hashKey`. */
type HashId = string;
/** What a backend can do. */
interface BackendCapabilities {
    /** Whether each acquisition comes with a fencing token. */
    supportsFencing: boolean;
    /** Whose clock decides when a lock ends. */
    timeAuthority: "server" | "client";
}
/** The capabilities of a backend with fencing tokens. */
interface FencingCapabilities extends BackendCapabilities {
    supportsFencing: true;
}
/** Names a lock by its key. */
type KeyOp = Readonly<{
    key: string;
    signal?: AbortSignal | undefined;
}>;
/** Names a lock by the id that its acquisition returned. */
type LockOp = Readonly<{
    lockId: string;
    signal?: AbortSignal | undefined;
}>;
/** Looks up a lock by its key. */
type KeyLookup = {
    key: string;
    signal?: AbortSignal | undefined;
};
/** Looks up a lock by its lock id. */
type OwnershipLookup = {
    lockId: string;
    signal?: AbortSignal | undefined;
};
/** A granted lock. Times are milliseconds since the Unix epoch, on the backend's clock. */
type AcquireOk<C extends BackendCapabilities> = {
    ok: true;
    lockId: string;
    expiresAtMs: number;
} & (C["supportsFencing"] extends true ? {
    fence: Fence;
} : {});
/** A granted lock, or `{ ok: false }` because somebody holds it. */
type AcquireResult<C extends BackendCapabilities> = AcquireOk<C> | {
    ok: false;
    reason: "locked";
};
/** Whether the lock was released; `{ ok: false }` if it was gone before. */
type ReleaseResult = {
    ok: true;
} | {
    ok: false;
};
/** When the lock ends now; `{ ok: false }` if it was gone before. */
type ExtendResult = {
    ok: true;
    expiresAtMs: number;
} | {
    ok: false;
};
/** A lock as lookups show it: hashes in place of the identifiers. */
type LockInfo<C extends BackendCapabilities> = {
    /** `hashKey(key)` */
    keyHash: HashId;
    /** `hashKey(lockId)` */
    lockIdHash: HashId;
    /** Milliseconds since the Unix epoch. */
    expiresAtMs: number;
    /** Milliseconds since the Unix epoch. */
    acquiredAtMs: number;
} & (C["supportsFencing"] extends true ? {
    fence: Fence;
} : {
    fence?: Fence;
});
/** A lock with its raw identifiers. Sensitive: for debugging only. */
type LockInfoDebug<C extends BackendCapabilities> = LockInfo<C> & {
    /** The key. */
    key: string;
    /** The lock id: whoever knows it can release the lock. */
    lockId: string;
    /** The label given by the `owner` option, if any. */
    owner?: string;
};
/**
 * A backend as every function of this package accepts it: a {@link LockBackend}, or a backend of your own whose `acquire`
 * returns plain results without the methods of a handle.
 */
interface LockBackendLike<C extends BackendCapabilities = BackendCapabilities> {
    /** Tries once to take the lock for `ttlMs` milliseconds. */
    acquire: (opts: KeyOp & {
        ttlMs: number;
    }) => Promise<AcquireResult<C>>;
    /** Frees the lock. Safe to repeat. */
    release: (opts: LockOp) => Promise<ReleaseResult>;
    /** Makes the lock end `ttlMs` milliseconds from now. Never revives one that has ended. */
    extend: (opts: LockOp & {
        ttlMs: number;
    }) => Promise<ExtendResult>;
    /** Whether somebody holds the lock. */
    isLocked: (opts: KeyOp) => Promise<boolean>;
    /** The lock on a key, or `null`. For diagnostics, never a guard before a mutation. */
    lookup(opts: KeyLookup): Promise<LockInfo<C> | null>;
    /** The lock with that lock id, or `null`. For diagnostics, never a guard before a mutation. */
    lookup(opts: OwnershipLookup): Promise<LockInfo<C> | null>;
    lookup(opts: KeyLookup | OwnershipLookup): Promise<LockInfo<C> | null>;
    /** What this backend can do. */
    readonly capabilities: Readonly<C>;
}
/** The contract between a store of locks and this package. Use a backend of this package, or write your own. */
interface LockBackend<C extends BackendCapabilities = BackendCapabilities> extends LockBackendLike<C> {
    /** Tries once to take the lock for `ttlMs` milliseconds. The result can be used with `await using`. */
    acquire: (opts: KeyOp & {
        ttlMs: number;
    }) => Promise<DecoratedAcquireResult<C>>;
}
/**
 * Called when a release fails where nothing can be thrown: at the end of an `await using` block or of `lock()`.
 *
 * @param error - the error of the release; a thrown value that is not an `Error` is its `originalError`
 * @param context - raw identifiers, and where it happened
 */
type OnReleaseError = (error: Error, context: {
    lockId: string;
    key: string;
    source: "disposal";
}) => void;
/** What a granted lock can do, and what becomes of it. The functions need no `this` and may be destructured. */
interface DisposableLockHandle {
    /**
     * Frees the lock, at most once: later calls return `{ ok: false }` and do nothing. Throws the store's error. With a
     * signal that is already aborted it throws `Aborted`, which does not count as a call: the lock can still be released.
     */
    release: (signal?: AbortSignal) => Promise<ReleaseResult>;
    /** Makes the lock end `ttlMs` milliseconds from now. */
    extend: (ttlMs: number, signal?: AbortSignal) => Promise<ExtendResult>;
    /**
     * Frees the lock if it has not been released. Never throws: the error of a failed release goes to `onReleaseError`, even
     * if it comes after `disposeTimeoutMs`.
     */
    [Symbol.asyncDispose](): Promise<void>;
    /**
     * Aborted when the lock is lost, with a `LockError` of the code `LockLost` as its reason. Without `autoExtend` that is when
     * its time is over. A lock that was released is not lost.
     *
     * Every handle of this package has it, and it is not enumerable. Results without a lock have none, and those that a backend
     * of your own makes by itself need none.
     */
    readonly signal?: AbortSignal;
}
/**
 * A lock that is held: the result of an acquisition with the members of a handle. `extend` and heartbeats update its
 * `expiresAtMs`.
 */
type AsyncLock<C extends BackendCapabilities = BackendCapabilities> = AcquireOk<C> & DisposableLockHandle;
/** What `backend.lock()` resolves to: an {@link AsyncLock} that surely has its signal. */
type HeldLock<C extends BackendCapabilities = BackendCapabilities> = AsyncLock<C> & {
    readonly signal: AbortSignal;
};
/** An acquisition's result that can be used with `await using`. Without a lock the methods do nothing. */
type DecoratedAcquireResult<C extends BackendCapabilities> = AsyncLock<C> | ({
    ok: false;
    reason: "locked";
} & DisposableLockHandle);
/** Whether and how a lock extends itself while it is held; `true` for the defaults. */
type AutoExtend = true | AutoExtendOptions;
/** How a lock extends itself. Heartbeats that fail are tried again until the lock ends. */
interface AutoExtendOptions {
    /** Milliseconds from one heartbeat to the next, less than the TTL. Default: a third of the TTL. */
    everyMs?: number | undefined;
    /** Milliseconds after which the lock is lost although it could be extended. Default: no limit. */
    maxMs?: number | undefined;
    /**
     * Milliseconds for which the event loop may hang: after that the lock is not extended until it turns again. Default
     * 30000.
     */
    maxStallMs?: number | undefined;
}
/** How long and how often to try. */
interface AcquisitionOptions {
    /** Attempts after the first. Default 10. */
    maxRetries?: number | undefined;
    /** Milliseconds before the first retry. Default 100. */
    retryDelayMs?: number | undefined;
    /** Whether the wait doubles each time. Default `"exponential"`. */
    backoff?: "exponential" | "fixed" | undefined;
    /** How much of the wait is random: half of it, all of it or nothing. Default `"equal"`. */
    jitter?: "equal" | "full" | "none" | undefined;
    /** Milliseconds to wait in all. Default 5000. */
    timeoutMs?: number | undefined;
    /**
     * What ends the wait between two attempts: `"notify"`, the default, when the store tells that the lock was freed, and in
     * any case when the next retry is due; `"poll"` only the latter. An attempt that follows a message is not a retry.
     */
    wait?: "notify" | "poll" | undefined;
    /** Ends the waiting; has no effect once the lock is held. */
    signal?: AbortSignal | undefined;
}
/** Which lock `lock()` takes, and how. */
interface LockConfig {
    /** Names what the lock protects: at most 512 bytes of UTF-8 after NFC normalisation. */
    key: string;
    /** Milliseconds after which the lock ends by itself. Default 30000. */
    ttlMs?: number | undefined;
    /** Cancels the waiting, and aborts the signal of the callback's handle. It does not affect the release. */
    signal?: AbortSignal | undefined;
    /** Extends the lock by itself while it is held. Default: it ends with its TTL. */
    autoExtend?: AutoExtend | undefined;
    /** Called when the release fails. A failed release never replaces what the callback returned or threw. */
    onReleaseError?: OnReleaseError | undefined;
    /** How long and how often to try. */
    acquisition?: AcquisitionOptions | undefined;
}
/** The handle that `lock()` passes to its callback. */
type LockHandle<C extends BackendCapabilities = BackendCapabilities> = LockHandleMembers<C> & {
    /**
     * Aborted when the lock is lost, with a `LockError` of the code `LockLost` as its reason, and with `config.signal`, for its
     * reason. Without `autoExtend` the lock is lost when its time is over.
     */
    readonly signal: AbortSignal;
};
/** What the handles of callbacks have in common. */
type LockHandleMembers<C extends BackendCapabilities = BackendCapabilities> = {
    /** The key as given. */
    readonly key: string;
    /** Proof of ownership. */
    readonly lockId: string;
    /** When the lock ends, in milliseconds since the Unix epoch; updated by `extend` and by heartbeats. */
    readonly expiresAtMs: number;
    /** Makes the lock end `ttlMs` milliseconds from now. */
    readonly extend: (ttlMs: number, signal?: AbortSignal) => Promise<ExtendResult>;
} & (C["supportsFencing"] extends true ? {
    readonly fence: Fence;
} : {
    readonly fence?: Fence;
});
/** `lock()` bound to a backend. */
type BoundLock<C extends BackendCapabilities = BackendCapabilities> = <T>(fn: (handle: LockHandle<C>) => Promise<T> | T, config: LockConfig & {
    acquisition?: AcquisitionOptions | undefined;
}) => Promise<T>;
/** How `backend.lock()` takes the lock. */
interface BackendLockOptions {
    /** Milliseconds after which the lock ends by itself. Default 30000. */
    ttlMs?: number | undefined;
    /** Cancels the waiting. */
    signal?: AbortSignal | undefined;
    /** Extends the lock by itself while it is held. Default: it ends with its TTL. */
    autoExtend?: AutoExtend | undefined;
    /** How long and how often to try. */
    acquisition?: AcquisitionOptions | undefined;
    /** Called when the release at disposal fails. Default: the backend's. */
    onReleaseError?: OnReleaseError | undefined;
    /** Milliseconds after which disposal aborts the release and stops waiting for it. Default: the backend's. */
    disposeTimeoutMs?: number | undefined;
    /** A label to store with the lock, at most 255 bytes of UTF-8; `getByKeyRaw` shows it. */
    owner?: string | undefined;
}
/** Options of every backend of this package. */
interface CommonBackendOptions {
    /** Whether `isLocked()` deletes what expired more than two seconds ago. Default false. */
    cleanupInIsLocked?: boolean | undefined;
    /** Called when the release at the end of an `await using` block fails. */
    onReleaseError?: OnReleaseError | undefined;
    /** Milliseconds after which disposal aborts the release and stops waiting for it. Default: no limit of its own. */
    disposeTimeoutMs?: number | undefined;
}
/** A backend of this package: a {@link LockBackend} with more methods. */
interface SyncGuardBackend<C extends BackendCapabilities = BackendCapabilities> extends LockBackend<C> {
    /** Tries once to take the lock for `ttlMs` milliseconds. The result can be used with `await using`. */
    acquire: (opts: KeyOp & {
        ttlMs: number;
        owner?: string | undefined;
        autoExtend?: AutoExtend | undefined;
    }) => Promise<HeldLock<C> | Extract<DecoratedAcquireResult<C>, {
        ok: false;
    }>>;
    /**
     * Waits for the lock and resolves once it is held.
     *
     * @throws LockError `AcquisitionTimeout` if others held it for too long
     */
    lock: (key: string, options?: BackendLockOptions) => Promise<HeldLock<C>>;
    /** Frees the lock, whoever holds it. For administrators: the holder is not notified. */
    forceRelease: (key: string, options?: {
        signal?: AbortSignal | undefined;
    }) => Promise<ReleaseResult>;
    /** Closes connections and files; safe to repeat. Without it, the process can still end. */
    close: () => Promise<void>;
    /** As `close()`. */
    [Symbol.asyncDispose](): Promise<void>;
}
/** An event of telemetry, which reports one operation, or the loss of a lock. */
type LockEvent = {
    /** Which operation; `"lost"` when a lock was lost. */
    type: "acquire" | "release" | "extend" | "isLocked" | "lookup" | "lost";
    /** Whether it gave what was asked for: `"fail"` for contention, an absent lock, `false`, `null` and errors. */
    result: "ok" | "fail";
    /** `hashKey(key)`, when the operation has a key. */
    keyHash?: HashId;
    /** `hashKey(lockId)`, when the operation has a lock id. */
    lockIdHash?: HashId;
    /** Why an acquisition, release or extension did nothing, when known. */
    reason?: "locked" | "expired" | "not-found";
    /** How long `lock()` has waited until the end of this attempt to acquire, in milliseconds; only for its attempts. */
    waitMs?: number;
    /** How many attempts it has made, with this one. */
    attempts?: number;
    /** How many times it was told that the lock may be free. */
    wakeups?: number;
    /** Milliseconds for which the lock was held. Only for `"lost"` and for what releases a lock by its handle. */
    heldMs?: number;
    /** How many heartbeats have extended the lock. Only beside `heldMs`, for a lock that extends itself. */
    extends?: number;
    /** Whether the lock was lost before it was released, as its handle knew. Only beside `heldMs`. */
    lost?: boolean;
    /** The key; only if `includeRaw` allows. */
    key?: string;
    /** The lock id; only if `includeRaw` allows. */
    lockId?: string;
};
/** Options of `withTelemetry()`. */
interface TelemetryOptions {
    /** Called for each operation. Not awaited; what it throws is ignored. */
    onEvent: (event: LockEvent) => void;
    /** Whether events carry raw identifiers. Default false; a predicate that throws means false. */
    includeRaw?: boolean | ((event: LockEvent) => boolean) | undefined;
}

/** The default backend: the one of `lock(fn, config)` without a backend. */

/**
 * Makes `backend` the one that `lock(fn, config)` uses in this process; `undefined` undoes that.
 *
 * @throws LockError `InvalidArgument` if it is no backend with fencing tokens
 */
declare function setDefaultBackend(backend: LockBackendLike<FencingCapabilities> | undefined): void;

/**
 * Waits for the lock, runs `fn` while it is held, and frees it whatever `fn` did.
 *
 * @param backend - where the lock is kept
 * @param fn - runs once the lock is held; what it returns or throws is what `lock` gives
 * @param config - which lock, and how to wait
 * @throws LockError `AcquisitionTimeout` if others held it for too long; `Aborted` if a signal ended the waiting; or the
 *   backend's error. A failed release is reported to `config.onReleaseError` and never replaces the result of `fn`.
 */
declare function lock<T, C extends BackendCapabilities = BackendCapabilities>(backend: LockBackendLike<C>, fn: (handle: LockHandle<C>) => Promise<T> | T, config: LockConfig & {
    acquisition?: AcquisitionOptions | undefined;
}): Promise<T>;
/**
 * The same on the default backend: the one given to `setDefaultBackend()`, else the one that `SYNCGUARD_URL` names, else
 * an SQLite database in the user's state folder.
 *
 * Only processes of the same user on the same machine use that database, so its locks exclude neither other users nor
 * other machines. For those, use a backend on a server.
 *
 * @param fn - runs once the lock is held; what it returns or throws is what `lock` gives
 * @param config - which lock, and how to wait
 */
declare function lock<T>(fn: (handle: LockHandle<FencingCapabilities>) => Promise<T> | T, config: LockConfig & {
    acquisition?: AcquisitionOptions | undefined;
}): Promise<T>;

/** The public types of the Firestore backend. */

/** Firestore gives fencing tokens; the clock of the client decides. */
interface FirestoreCapabilities extends BackendCapabilities {
    backend: "firestore";
    supportsFencing: true;
    timeAuthority: "client";
}
/** Your client: an instance of `Firestore` of `@google-cloud/firestore`, or any object with its methods. */
interface FirestoreClient {
    collection: (...args: never[]) => unknown;
    runTransaction: (...args: never[]) => unknown;
}
/**
 * Which database to use and how to authenticate, with the option names of `@google-cloud/firestore`. Missing options are
 * taken from the environment.
 */
interface FirestoreConnectionOptions {
    /** The Google Cloud project. Default: GOOGLE_CLOUD_PROJECT, GCLOUD_PROJECT, else that of the credentials. */
    projectId?: string | undefined;
    /** The database in the project. Default `"(default)"`. */
    databaseId?: string | undefined;
    /**
     * The content of a key file; `client_email` and `private_key` are enough. Default: Application Default Credentials,
     * that is the file in GOOGLE_APPLICATION_CREDENTIALS, that of `gcloud`, or the machine's own account.
     */
    credentials?: Readonly<Record<string, unknown>> | undefined;
    /** The path of a key file, instead of `credentials`. It is read by the first operation. */
    keyFilename?: string | undefined;
    /** `host:port` of an emulator, which needs no credentials. Default: FIRESTORE_EMULATOR_HOST. */
    emulatorHost?: string | undefined;
    /** A server other than Google's public one: `host` or `host:port`. */
    host?: string | undefined;
    /** Whether `host` speaks TLS. Default true. */
    ssl?: boolean | undefined;
}
/** Options of the Firestore backend. */
interface FirestoreBackendOptions extends CommonBackendOptions {
    /** The collection of locks. Default `"locks"`. */
    collection?: string | undefined;
    /** The collection of fence counters, which must not be that of the locks. Default `"fence_counters"`. */
    fenceCollection?: string | undefined;
    /**
     * Milliseconds after which an operation fails, including its retries after conflicts; at most an hour. Default 5000.
     */
    operationTimeoutMs?: number | undefined;
    /**
     * How operations get to Firestore.
     *
     * - `"native"`: over a connection of this package. Of a client, only the settings are used.
     * - `"client"`: through the client's own transactions.
     *
     * Default: native if all settings that matter can be carried over, else the client.
     */
    transport?: "native" | "client" | undefined;
}
/** The options, with the defaults filled in. */
interface FirestoreConfig {
    collection: string;
    fenceCollection: string;
    cleanupInIsLocked: boolean;
}
/** A lock as Firestore keeps it. */
interface LockDocument {
    lockId: string;
    /** Milliseconds since the Unix epoch. */
    expiresAtMs: number;
    /** Milliseconds since the Unix epoch. */
    acquiredAtMs: number;
    key: string;
    fence: string;
}

/**
 * A backend that keeps locks in Google Cloud Firestore.
 *
 * Each client's own clock decides when locks end, so keep the clocks synchronised. The backend connects at the first
 * operation, and again when the connection is lost. An idle connection does not keep the process alive.
 *
 * @param db - one of
 *   - an instance of `Firestore` of `@google-cloud/firestore`: its settings are read, and the backend makes a connection of
 *     its own. If the settings cannot be carried over, or if it is a wrapper or a mock, its `runTransaction` and
 *     `collection` are used instead: see {@link FirestoreBackendOptions.transport}. You terminate it yourself.
 *   - connection options
 *   - nothing: all settings are taken from the environment
 * @throws LockError `InvalidArgument` that names the setting. A missing project or wrong credentials are only reported by
 *   the first operation, because nothing connects before.
 */
declare function createFirestoreBackend(db?: FirestoreClient | FirestoreConnectionOptions, options?: FirestoreBackendOptions): SyncGuardBackend<FirestoreCapabilities>;

/** How long after its end a lock still counts as held, in milliseconds: a margin for clocks that differ. */
declare const TIME_TOLERANCE_MS: 1000;
/** The longest key, in bytes of UTF-8 after NFC normalisation. */
declare const MAX_KEY_LENGTH_BYTES: 512;
/** The defaults of helpers for backends, in milliseconds. */
declare const BACKEND_DEFAULTS: Readonly<{
    ttlMs: 30000;
}>;
/** How `lock()` waits by default; times in milliseconds. */
declare const LOCK_DEFAULTS: Readonly<{
    readonly maxRetries: 10;
    readonly retryDelayMs: 100;
    readonly timeoutMs: 5000;
    readonly backoff: "exponential";
    readonly jitter: "equal";
}>;
/** Fences above `WARN` are reported with a warning; above `MAX`, none are granted. Compare them as strings. */
declare const FENCE_THRESHOLDS: Readonly<{
    MAX: "900000000000000";
    WARN: "090000000000000";
}>;
/** The longest storage key of each store, in bytes; for `makeStorageKey`. */
declare const BACKEND_LIMITS: Readonly<{
    readonly REDIS: 1000;
    readonly POSTGRES: 1700;
    readonly FIRESTORE: 1500;
}>;
/** The bytes of a storage key that each store reserves for derived keys; for `makeStorageKey`. */
declare const RESERVE_BYTES: Readonly<{
    readonly REDIS: 26;
    readonly POSTGRES: 0;
    readonly FIRESTORE: 0;
}>;
/** How to wait: every setting has a value, except that there may be no signal. */
type AcquisitionPolicy = {
    [Option in Exclude<keyof AcquisitionOptions, "signal" | "wait">]-?: NonNullable<AcquisitionOptions[Option]>;
} & Pick<AcquisitionOptions, "signal">;
/** The options that override the defaults of a backend. */
interface BackendConfig {
    /** Milliseconds after which a lock ends by itself. Default 30000. */
    ttlMs?: number | undefined;
}
/** The options, with the defaults of `lock()` filled in and the signal unchanged. */
declare function mergeAcquisitionConfig(options?: AcquisitionOptions): AcquisitionPolicy;
/** The options, with the defaults of backends filled in. */
declare function mergeBackendConfig(config?: BackendConfig): {
    ttlMs: number;
};

/** The raw identifiers, which lookups hide. */
type RawIdentifiers = {
    key: string;
    lockId: string;
    owner?: string;
    /** The time on the store's clock at the lookup, in milliseconds since the Unix epoch. */
    readAtMs?: number;
};
/** A lock as a store keeps it. */
type RawLockData = {
    key: string;
    lockId: string;
    expiresAtMs: number;
    acquiredAtMs: number;
    fence?: Fence | undefined;
};
/** Options of the lookups. */
type LookupOptions = {
    signal?: AbortSignal | undefined;
};
/** The lock on `key`, or `null`. Shows hashes, not identifiers. */
declare function getByKey<C extends BackendCapabilities>(backend: LockBackendLike<C>, key: string, opts?: LookupOptions): Promise<LockInfo<C> | null>;
/** The lock with that lock id, or `null`. Shows hashes, not identifiers. */
declare function getById<C extends BackendCapabilities>(backend: LockBackendLike<C>, lockId: string, opts?: LookupOptions): Promise<LockInfo<C> | null>;
/** The lock on `key` with its raw identifiers, or `null`. Sensitive: for debugging only. */
declare function getByKeyRaw<C extends BackendCapabilities>(backend: LockBackendLike<C>, key: string, opts?: LookupOptions): Promise<LockInfoDebug<C> | null>;
/** The lock with that lock id and its raw identifiers, or `null`. Sensitive: for debugging only. */
declare function getByIdRaw<C extends BackendCapabilities>(backend: LockBackendLike<C>, lockId: string, opts?: LookupOptions): Promise<LockInfoDebug<C> | null>;
/**
 * Whether the lock with that lock id is held now.
 *
 * For diagnostics only: by the time you act on the answer, it may be out of date. `release` and `extend` check the
 * ownership themselves.
 */
declare function owns<C extends BackendCapabilities>(backend: LockBackendLike<C>, lockId: string): Promise<boolean>;
/** The part of a lock that a lookup may show: hashes in place of identifiers, and the fence if the backend has fences. */
declare function sanitizeLockInfo<C extends BackendCapabilities>(rawData: RawLockData, capabilities: Readonly<C>): LockInfo<C>;
/** Attaches the raw identifiers to `info`, visible only to `getByKeyRaw` and `getByIdRaw`. */
declare function attachRawData<Info extends object>(info: Info, raw: RawIdentifiers): Info;

/**
 * What went wrong: one of nine codes that mean the same on every backend
 * (README.md, "Errors").
 *
 * - `ServiceUnavailable`: the store cannot be reached or cannot serve now
 * - `AuthFailed`: credentials or access refused
 * - `InvalidArgument`: the input or the configuration is wrong
 * - `RateLimited`: the store or the connection pool is overloaded
 * - `NetworkTimeout`: no answer in time; the store may have done what was asked
 * - `AcquisitionTimeout`: waiting for a lock took longer than allowed
 * - `LockLost`: a lock that was held has ended, or somebody has put it out; the reason of a handle's `signal`
 * - `Aborted`: an `AbortSignal` cancelled the operation
 * - `Internal`: anything else
 */
type LockErrorCode = "ServiceUnavailable" | "AuthFailed" | "InvalidArgument" | "RateLimited" | "NetworkTimeout" | "AcquisitionTimeout" | "LockLost" | "Aborted" | "Internal";
/** What a {@link LockError} is about. It contains raw identifiers, so do not log it as it is. */
interface LockErrorContext {
    /** The lock's key. */
    key?: string | undefined;
    /** The lock's id. */
    lockId?: string | undefined;
    /** The error underneath. */
    cause?: unknown;
}
/**
 * The error type of this package: every rejection that is not an error of your own callback has it.
 *
 * `instanceof` recognises the errors of every entry point, of ESM and CommonJS, and of a second installed copy. The key
 * and the lock id are in `context`, and neither in the message nor in what `console.log` prints.
 */
declare class LockError extends Error {
    /** What went wrong. */
    code: LockErrorCode;
    /** What it is about, when known. Not enumerable, so that printing the error shows no key. */
    context?: LockErrorContext | undefined;
    /**
     * @param code - what went wrong
     * @param message - for people; the code by default
     * @param context - what the error is about; `context.cause` also becomes the error's `cause`
     */
    constructor(code: LockErrorCode, message?: string, context?: LockErrorContext);
    /** Recognises the errors of other copies of this class. Subclasses behave as usual. */
    static [Symbol.hasInstance](value: unknown): boolean;
}

/** Handles: the methods of a granted lock, and its release at the end of a block. */

/** The part of a backend that handles need. */
type Mutations<C extends BackendCapabilities> = Pick<LockBackend, "release" | "extend"> & {
    readonly capabilities?: Readonly<C>;
};
/**
 * The handle of a granted lock: the members of `result`, and the methods `release`, `extend` and disposal. For a result
 * without a lock, the methods do nothing.
 *
 * @param backend - where the lock is held; only its `release` and `extend` are used
 * @param result - what its `acquire` returned
 * @param key - the lock's key, for `onReleaseError`
 * @param onReleaseError - called when a release fails during disposal; the default logs to the console, unless `NODE_ENV`
 *   is `production` and `SYNCGUARD_DEBUG` is not `true`
 * @param disposeTimeoutMs - milliseconds after which disposal aborts the release and stops waiting for it;
 *   `onReleaseError` is called when the release is rejected, then or later, and not at all if it never ends
 */
declare function createDisposableHandle<C extends BackendCapabilities>(backend: Mutations<C>, result: AcquireOk<C>, key: string, onReleaseError?: OnReleaseError, disposeTimeoutMs?: number): AsyncLock<C>;
/** The same for a result that may have no lock. */
declare function createDisposableHandle<C extends BackendCapabilities>(backend: Mutations<C>, result: AcquireResult<C>, key: string, onReleaseError?: OnReleaseError, disposeTimeoutMs?: number): DecoratedAcquireResult<C>;
/**
 * The result of an acquisition with the methods of {@link createDisposableHandle}, for `await using`.
 *
 * Backends return this from `acquire`.
 */
declare function decorateAcquireResult<C extends BackendCapabilities>(backend: Mutations<C>, result: AcquireResult<C>, key: string, onReleaseError?: OnReleaseError, disposeTimeoutMs?: number): DecoratedAcquireResult<C>;
/**
 * Tries once to take a lock, on any backend whose results can be disposed of. A plain result without a lock is returned as
 * it is, because there is nothing to dispose of.
 *
 * @throws LockError `Internal` if the backend returns a plain result for a granted lock, which is released
 */
declare function acquireHandle<C extends BackendCapabilities>(backend: LockBackendLike<C>, opts: KeyOp & {
    ttlMs: number;
}): Promise<DecoratedAcquireResult<C>>;

/**
 * A backend that does what `backend` does, and calls `onEvent` for each operation, including those of handles.
 *
 * Events carry hashes in place of identifiers, unless `includeRaw` allows more. They are not awaited, and errors of
 * `onEvent` or `includeRaw` do not affect the operation.
 */
declare function withTelemetry<C extends BackendCapabilities>(backend: SyncGuardBackend<C>, options: TelemetryOptions): SyncGuardBackend<C>;
/** The same for a backend of your own. */
declare function withTelemetry<C extends BackendCapabilities>(backend: LockBackendLike<C>, options: TelemetryOptions): LockBackend<C>;

/**
 * The key in Unicode NFC.
 *
 * @throws LockError `InvalidArgument` if it is not a string, empty, or longer than 512 bytes of UTF-8
 */
declare function normalizeAndValidateKey(key: string): string;
/**
 * Checks that a lock id is 22 characters of base64url.
 *
 * @throws LockError `InvalidArgument` if it is not
 */
declare function validateLockId(lockId: string): void;
/** A new lock id: 16 bytes from the system's random source, as 22 characters of base64url. */
declare function generateLockId(): string;
/**
 * A fingerprint by which a key or a lock id can be recognised in logs: 24 hexadecimal digits. It does not hide the key,
 * because it is not cryptographic: a short key can be read from it (`hashKey("a")` starts with 61, the code of "a"), and
 * others can be found by trying. Do not show it to anybody who must not know the keys.
 */
declare function hashKey(value: string): HashId;
/**
 * The key under which a store keeps a lock: `prefix:key`, with the key in NFC, or a hash of it where that is too long.
 *
 * @param prefix - namespace; trailing colons are dropped; may be empty
 * @param key - the user's key
 * @param limitBytes - the store's limit, in bytes of UTF-8; see `BACKEND_LIMITS`
 * @param reserveBytes - bytes to keep free for derived keys; see `RESERVE_BYTES`
 * @throws LockError `InvalidArgument` if the key is empty or the prefix leaves no room
 */
declare function makeStorageKey(prefix: string, key: string, limitBytes: number, reserveBytes: number): string;
/**
 * A number as a fencing token: 15 digits, zero-padded. Fractions are cut off.
 *
 * @throws LockError `InvalidArgument` if it is negative, not a number, or has more than 15 digits
 */
declare function formatFence(value: number | bigint): Fence;
/**
 * Warns on the console that the fences of a key are running out.
 *
 * @param key - the name to print for the key, unchanged; the backends of this package pass `hashKey(key)`
 */
declare function logFenceWarning(fence: Fence | number, key: string): void;
/** Whether the result of an acquisition has a fencing token; for code that works with any backend. */
declare function hasFence<C extends BackendCapabilities>(result: AcquireResult<C>): result is AcquireOk<C> & {
    fence: Fence;
};
/** Whether a lock that ends at `expiresAtMs` counts as held at `nowMs`. All in milliseconds. */
declare function isLive(expiresAtMs: number, nowMs: number, toleranceMs: number): boolean;
/** Milliseconds since the Unix epoch from the reply of Redis' TIME: seconds and microseconds, as decimal strings. */
declare function calculateRedisServerTimeMs(timeTuple: [string, string]): number;

/** The public types of the PostgreSQL backend. */

/** PostgreSQL gives fencing tokens, and its clock decides. */
interface PostgresCapabilities extends BackendCapabilities {
    backend: "postgres";
    supportsFencing: true;
    timeAuthority: "server";
}
/** Your client with postgres.js' `unsafe(text, params)`, which gives the rows. */
interface PostgresJsClient {
    unsafe: (...args: never[]) => unknown;
}
/** Your client with pg's `query(text, params)`, which gives `{ rows }`. */
interface PgClient {
    query: (...args: never[]) => unknown;
}
/** Your client: postgres.js, a pg `Pool` or `Client`, or any object with their method for queries. */
type PostgresClient = PostgresJsClient | PgClient;
/** Which servers to trust, and how the client identifies itself. Certificates and keys are PEM. */
interface PostgresSslOptions {
    /** The certificates to trust. Default: those that Node trusts. */
    ca?: string | Uint8Array | readonly (string | Uint8Array)[] | undefined;
    /** The client certificate to present, with its chain. */
    cert?: string | Uint8Array | readonly (string | Uint8Array)[] | undefined;
    /** Its private key, without a passphrase. */
    key?: string | Uint8Array | undefined;
    /** The name that the server's certificate must have. Default: the host. */
    servername?: string | undefined;
    /** Whether a certificate that cannot be trusted ends the connection. Default true. */
    rejectUnauthorized?: boolean | undefined;
}
/**
 * Where a PostgreSQL server is, with the option names of postgres.js and of pg. Options given besides `url` override it;
 * missing ones are taken from the variables PGHOST, PGUSER and so on.
 */
interface PostgresConnectionOptions {
    /** A URL as for {@link createPostgresBackend}. */
    url?: string | undefined;
    /** The same, with pg's name. */
    connectionString?: string | undefined;
    /** Names, addresses, or folders of unix sockets; of several, the first that accepts writes. Default `"localhost"`. */
    host?: string | readonly string[] | undefined;
    /** One for all hosts, or one for each. Default 5432. */
    port?: number | readonly number[] | undefined;
    /** A unix socket, such as `/run/postgresql/.s.PGSQL.5432`, instead of host and port. */
    path?: string | undefined;
    /** Default: the name of the role. */
    database?: string | undefined;
    /** The role. Default: the name of the operating system's user. */
    user?: string | undefined;
    /** The same. */
    username?: string | undefined;
    /** The password, or a function that gives one for each connection, for example a token that expires. */
    password?: string | (() => string | PromiseLike<string>) | undefined;
    /** The same. */
    pass?: string | (() => string | PromiseLike<string>) | undefined;
    /** The mode, as in libpq. `true` means `"verify-full"`, `false` means `"disable"`. Default `"prefer"`. */
    ssl?: boolean | "disable" | "allow" | "prefer" | "require" | "verify-ca" | "verify-full" | PostgresSslOptions | undefined;
    /** The most connections at once. Default 10. */
    max?: number | undefined;
    /** Seconds that getting a connection may take. Default 5. */
    connect_timeout?: number | undefined;
    /** The same in milliseconds, with pg's name. */
    connectionTimeoutMillis?: number | undefined;
    /** The name of the connections in `pg_stat_activity`. Default `"syncguard"`. */
    application_name?: string | undefined;
    /** Command-line options of the sessions, such as `-c search_path=locks`. */
    options?: string | undefined;
    /** Session settings by name. */
    connection?: Readonly<Record<string, string | number | boolean | undefined>> | undefined;
    /** Milliseconds; the server ends statements that take longer. Default: the operation's limit. */
    statement_timeout?: number | undefined;
    /** Milliseconds that a statement may wait for another session's lock. */
    lock_timeout?: number | undefined;
    /** Which servers to accept. Default: with several hosts, only one that accepts writes. */
    target_session_attrs?: "any" | "read-write" | "primary" | undefined;
    /** Whether statements are prepared, see {@link PostgresBackendOptions.prepare}. */
    prepare?: boolean | undefined;
}
/** Options of the PostgreSQL backend. */
interface PostgresBackendOptions extends CommonBackendOptions {
    /** The table of locks. Default `"syncguard_locks"`. */
    tableName?: string | undefined;
    /** The table of fence counters. Default `"syncguard_fence_counters"`. */
    fenceTableName?: string | undefined;
    /** Milliseconds after which an operation fails. Default: `query_timeout` of a pg client, else 5000. */
    operationTimeoutMs?: number | undefined;
    /** Milliseconds that getting a connection may take. Default: the client's own, else 5000. */
    connectTimeoutMs?: number | undefined;
    /** The most native connections at once; they are opened when they are needed. Default: the client's `max`, else 10. */
    poolSize?: number | undefined;
    /**
     * Whether a release is answered only when it is on the server's disk. If false, releases are faster, but a crash of the
     * server may bring the lock back until its TTL ends it. Acquisitions always wait for the disk. Default false.
     */
    durableReleases?: boolean | undefined;
    /**
     * Whether statements are prepared once per native connection. The backend notices by itself when a pooler makes that
     * impossible. Default: the client's, else true.
     */
    prepare?: boolean | undefined;
    /**
     * How operations get to the server.
     *
     * - `"native"`: over connections of this package. Of a client, only the settings are used.
     * - `"client"`: through the client's own `unsafe` or `query`.
     *
     * Default: native if all settings that matter can be carried over, else the client.
     */
    transport?: "native" | "client" | undefined;
}
/** Options of {@link setupSchema}: the backend's options for tables and connections. */
type PostgresSchemaOptions = Pick<PostgresBackendOptions, "tableName" | "fenceTableName" | "connectTimeoutMs" | "transport">;
/** The options, with the defaults filled in. */
interface PostgresConfig {
    tableName: string;
    fenceTableName: string;
    cleanupInIsLocked: boolean;
}

/**
 * A backend that keeps locks in PostgreSQL. The tables must exist: see {@link setupSchema}.
 *
 * It connects at the first operation, and again when connections are lost. Idle connections do not keep the process
 * alive.
 *
 * @param sql - one of
 *   - a postgres.js instance, or a pg `Pool` or `Client`: its settings are read, and the backend makes connections of
 *     its own. If the settings cannot be carried over, or if it is a wrapper or a mock, its method for queries is used
 *     instead: see {@link PostgresBackendOptions.transport}. You close it yourself.
 *   - a URL, as for `psql`: `postgres://user:password@host:5432/database?sslmode=verify-full`
 *   - connection options; `{}` takes everything from the variables PGHOST, PGUSER and so on
 * @throws LockError `InvalidArgument` that names the setting. That a server is down is only reported by the first
 *   operation.
 */
declare function createPostgresBackend(sql: PostgresClient | string | PostgresConnectionOptions, options?: PostgresBackendOptions): SyncGuardBackend<PostgresCapabilities>;
/**
 * Creates the tables and indexes that are missing. Call it before the first lock, as often and in as many processes as you
 * like. It also works on tables that SyncGuard 2 for TypeScript has created.
 *
 * Needs the right to create tables, and no rights if nothing is missing.
 *
 * @param sql - as for {@link createPostgresBackend}
 * @throws LockError `InvalidArgument` for options, `AuthFailed` for missing rights, and the errors of connecting
 */
declare function setupSchema(sql: PostgresClient | string | PostgresConnectionOptions, options?: PostgresSchemaOptions): Promise<void>;

/** The public types of the Redis backend. */

/** Redis gives fencing tokens, and its clock decides. */
interface RedisCapabilities extends BackendCapabilities {
    backend: "redis";
    supportsFencing: true;
    timeAuthority: "server";
}
/**
 * Your client: ioredis, node-redis, a cluster of either, or any object with their `eval`.
 *
 * - ioredis and its like: `eval(script, numKeys, ...keys, ...args)`, all but `numKeys` strings
 * - node-redis: `eval(script, { keys, arguments })`
 *
 * An object of your own that leads to a Redis Cluster needs `isCluster: true`, as ioredis has it, and must send each script
 * to the node of its keys.
 */
interface RedisClient {
    eval: (...args: never[]) => unknown;
}
/** Which servers to trust, and how the client identifies itself. Certificates and keys are PEM. */
interface RedisTlsOptions {
    /** The certificates to trust. Default: those that Node trusts. */
    ca?: string | Uint8Array | readonly (string | Uint8Array)[] | undefined;
    /** The client certificate to present, with its chain. */
    cert?: string | Uint8Array | readonly (string | Uint8Array)[] | undefined;
    /** Its private key, without a passphrase. */
    key?: string | Uint8Array | undefined;
    /** The name that the server's certificate must have. Default: the host. */
    servername?: string | undefined;
    /** Whether a certificate that cannot be trusted ends the connection. Default true. */
    rejectUnauthorized?: boolean | undefined;
}
/** The address of one node of a cluster. */
interface RedisClusterNode {
    /** A name or an address. Default `"localhost"`. */
    host?: string | undefined;
    /** Default 6379. */
    port?: number | undefined;
}
/** Where a Redis server is, with the option names of ioredis. Options given besides `url` override it. */
interface RedisConnectionOptions {
    /** A URL as for {@link createRedisBackend}. */
    url?: string | undefined;
    /** A name or an address. Default `"localhost"`. */
    host?: string | undefined;
    /** Default 6379. */
    port?: number | undefined;
    /** A socket in the file system, instead of host and port. */
    path?: string | undefined;
    /** The number of the database. Default 0, which is the only one of a cluster. */
    db?: number | undefined;
    /** The ACL user; needs a password. Default: the default user. */
    username?: string | undefined;
    /** The password. */
    password?: string | undefined;
    /** TLS, or `true` for TLS with the certificates that Node trusts. */
    tls?: RedisTlsOptions | boolean | undefined;
    /**
     * Some nodes of a Redis Cluster, instead of `url` or of host and port: each `"host:port"`, a `redis://` or `rediss://` URL,
     * or `{ host, port }`. They are asked for the others. All other options apply to every node; URLs with a login must have
     * the same one.
     *
     * @example createRedisBackend({ nodes: ["10.0.0.1:7000", "10.0.0.2:7000"], password: "…" })
     */
    nodes?: readonly (string | RedisClusterNode)[] | undefined;
    /**
     * Where the nodes of a cluster can be reached, if not at the addresses that they announce: behind NAT, in containers,
     * through tunnels. By the announced `"host:port"`; other nodes are used as they are. A function is not possible here.
     *
     * @example { "10.0.0.1:7000": { host: "127.0.0.1", port: 17000 } }
     */
    natMap?: Readonly<Record<string, {
        host: string;
        port: number;
    }>> | undefined;
    /** Sentinels to ask for the primary, instead of host and port. With TLS, they must use it too. */
    sentinels?: readonly {
        host: string;
        port?: number | undefined;
    }[] | undefined;
    /** The name that the Sentinels use for the primary. */
    name?: string | undefined;
    /** The ACL user of the Sentinels themselves. */
    sentinelUsername?: string | undefined;
    /** The password of the Sentinels themselves. */
    sentinelPassword?: string | undefined;
    /** The name of the connection in `CLIENT LIST`. */
    connectionName?: string | undefined;
    /** A prefix of every key, like ioredis' option `keyPrefix`, and not the same as the backend's `keyPrefix`. */
    clientKeyPrefix?: string | undefined;
    /** Milliseconds that making a connection may take. Default 5000. */
    connectTimeout?: number | undefined;
}
/** Options of the Redis backend. */
interface RedisBackendOptions extends CommonBackendOptions {
    /** Namespace of all keys. Default `"syncguard"`. */
    keyPrefix?: string | undefined;
    /**
     * Milliseconds after which an operation fails with `NetworkTimeout` or `ServiceUnavailable`. Default: `commandTimeout`
     * of an ioredis client, else 5000.
     */
    operationTimeoutMs?: number | undefined;
    /** Milliseconds that making a connection may take. Default: the client's `connectTimeout`, else 5000. */
    connectTimeoutMs?: number | undefined;
    /**
     * How operations get to the server.
     *
     * - `"native"`: over a connection of this package. Of a client, only the settings are used.
     * - `"client"`: through the client's own `eval`.
     *
     * Default: native if all settings that matter can be carried over, else the client.
     */
    transport?: "native" | "client" | undefined;
}
/** The options, with the defaults filled in. */
interface RedisConfig {
    keyPrefix: string;
    cleanupInIsLocked: boolean;
}
/** A lock as Redis keeps it, in JSON. */
interface LockData {
    lockId: string;
    /** Milliseconds since the Unix epoch. */
    expiresAtMs: number;
    /** Milliseconds since the Unix epoch. */
    acquiredAtMs: number;
    key: string;
    fence: string;
}

/**
 * A backend that keeps locks in Redis: in one server, with or without replicas, TLS and Sentinel, or in a Redis Cluster.
 *
 * It connects at the first operation, and again when the connection is lost. An idle connection does not keep the
 * process alive.
 *
 * @param client - one of
 *   - a client of ioredis or node-redis, also a `Cluster` or of `createCluster`: its settings are read, and the backend makes a connection of its own. If the
 *     settings cannot be carried over, or if it is a wrapper or a mock, its `eval` is used instead: see
 *     {@link RedisBackendOptions.transport}. You close it yourself.
 *   - a URL: `redis://user:password@host:6379/0`, `rediss://…` with TLS, `unix:///path/redis.sock?db=0`,
 *     `redis+sentinel://host:26379,host2:26379/name/0`, `redis+cluster://host:7000,host2:7001`
 *   - connection options
 * @throws LockError `InvalidArgument` that names the setting. That a server is down is only reported by the first
 *   operation.
 */
declare function createRedisBackend(client: RedisClient | string | RedisConnectionOptions, options?: RedisBackendOptions): SyncGuardBackend<RedisCapabilities>;

/** `"server"` means the machine's clock, which all users of the file share. */
interface SqliteCapabilities extends BackendCapabilities {
    backend: "sqlite";
    supportsFencing: true;
    timeAuthority: "server";
}
/** Options of the SQLite backend. */
interface SqliteBackendOptions extends CommonBackendOptions {
    /** The database file, in an existing folder. Default `":memory:"`: a database in memory that ends with the process. */
    path?: string | undefined;
    /** Milliseconds after which an operation fails with `NetworkTimeout`, e.g. while others hold the database. */
    operationTimeoutMs?: number | undefined;
    /**
     * Whether the file may be on a network file system. Then no other machine may use the file, because the locks do not
     * work across machines. Without this option, such a path is an `InvalidArgument`.
     */
    allowNetworkFileSystem?: boolean | undefined;
}
/**
 * A backend that keeps locks in a SQLite database: no server needed.
 *
 * All processes of one machine that use the same file exclude each other; network file systems are refused. Times are
 * those of the machine's clock: when it is set forward, locks end early; when it is set back, they last longer.
 *
 * @param path - a file in a folder that exists, `":memory:"`, or a URL such as `sqlite:///var/lib/app/locks.db`
 * @throws LockError `InvalidArgument` for invalid options. The file is opened by the first operation.
 */
declare function createSqliteBackend(path: string, options?: SqliteBackendOptions): SyncGuardBackend<SqliteCapabilities>;
/** The same, with the path among the options. */
declare function createSqliteBackend(options?: SqliteBackendOptions): SyncGuardBackend<SqliteCapabilities>;

/** Waits for a lock and holds it, while a callback runs or until its holder releases it. */

/** `lock()` bound to `backend`. */
declare function createAutoLock<C extends BackendCapabilities>(backend: LockBackendLike<C>): BoundLock<C>;

/** Conditions and results of release and extend. For authors of backends. */

/**
 * The symbol under which failed releases and extensions carry `{ reason }` for telemetry, and nothing else sees it. A
 * backend of your own does the same with
 * `Object.defineProperty({ ok: false }, FAILURE_REASON, { value: { reason } })`.
 */
declare const FAILURE_REASON: unique symbol;
/** Why a release or an extension did nothing. */
type MutationReason = "expired" | "not-found";
/** What a backend has found when it was asked to change a lock. */
type MutationCondition = "succeeded" | "observable-expired" | "never-existed" | "ownership-mismatch" | "cleaned-up-after-expiry" | "ambiguous-unknown";
/** The result that a condition leads to. */
type MutationResult = {
    ok: true;
} | {
    ok: false;
    reason: MutationReason;
};
/** The state of a lock document. */
type DocumentState = {
    documentExists: boolean;
    ownershipValid: boolean;
    isLive: boolean;
};
/** The condition for the code of a Redis script or the state of a lock document. */
declare function mapBackendObservation(observation: number | DocumentState): MutationCondition;
/** The condition for the code of a Redis script. */
declare function mapRedisScriptResult(code: number): MutationCondition;
/** The condition for the state of a lock document. */
declare function mapFirestoreConditions(state: DocumentState): MutationCondition;
/**
 * The result for a condition: only an expiry that was seen counts as `"expired"`.
 *
 * For authors of backends. The results of `release` and `extend` show no reason: see {@link FAILURE_REASON}.
 */
declare function mapToMutationResult(condition: MutationCondition): MutationResult;

/**
 * Throws if the signal is aborted. For backends whose driver does not support signals.
 *
 * @throws LockError `Aborted`
 */
declare function checkAborted(signal?: AbortSignal): void;
/**
 * Resolves after `ms` milliseconds, or rejects as soon as the signal is aborted.
 *
 * @throws LockError `Aborted`
 */
declare function delay(ms: number, signal?: AbortSignal): Promise<void>;

/** `syncguard/redis` */

/** `lock()` bound to a Redis backend: see {@link createRedisBackend}. */
declare function createLock$3(client: RedisClient | string | RedisConnectionOptions, options?: RedisBackendOptions): BoundLock<RedisCapabilities>;

type redis_LockData = LockData;
type redis_RedisBackendOptions = RedisBackendOptions;
type redis_RedisCapabilities = RedisCapabilities;
type redis_RedisClient = RedisClient;
type redis_RedisClusterNode = RedisClusterNode;
type redis_RedisConfig = RedisConfig;
type redis_RedisConnectionOptions = RedisConnectionOptions;
type redis_RedisTlsOptions = RedisTlsOptions;
declare const redis_createRedisBackend: typeof createRedisBackend;
declare namespace redis {
  export { createLock$3 as createLock, redis_createRedisBackend as createRedisBackend };
  export type { redis_LockData as LockData, redis_RedisBackendOptions as RedisBackendOptions, redis_RedisCapabilities as RedisCapabilities, redis_RedisClient as RedisClient, redis_RedisClusterNode as RedisClusterNode, redis_RedisConfig as RedisConfig, redis_RedisConnectionOptions as RedisConnectionOptions, redis_RedisTlsOptions as RedisTlsOptions };
}

/** `syncguard/postgres` */

/** `lock()` bound to a PostgreSQL backend: see {@link createPostgresBackend}. */
declare function createLock$2(sql: PostgresClient | string | PostgresConnectionOptions, options?: PostgresBackendOptions): BoundLock<PostgresCapabilities>;

type postgres_PgClient = PgClient;
type postgres_PostgresBackendOptions = PostgresBackendOptions;
type postgres_PostgresCapabilities = PostgresCapabilities;
type postgres_PostgresClient = PostgresClient;
type postgres_PostgresConfig = PostgresConfig;
type postgres_PostgresConnectionOptions = PostgresConnectionOptions;
type postgres_PostgresJsClient = PostgresJsClient;
type postgres_PostgresSchemaOptions = PostgresSchemaOptions;
type postgres_PostgresSslOptions = PostgresSslOptions;
declare const postgres_createPostgresBackend: typeof createPostgresBackend;
declare const postgres_setupSchema: typeof setupSchema;
declare namespace postgres {
  export { createLock$2 as createLock, postgres_createPostgresBackend as createPostgresBackend, postgres_setupSchema as setupSchema };
  export type { postgres_PgClient as PgClient, postgres_PostgresBackendOptions as PostgresBackendOptions, postgres_PostgresCapabilities as PostgresCapabilities, postgres_PostgresClient as PostgresClient, postgres_PostgresConfig as PostgresConfig, postgres_PostgresConnectionOptions as PostgresConnectionOptions, postgres_PostgresJsClient as PostgresJsClient, postgres_PostgresSchemaOptions as PostgresSchemaOptions, postgres_PostgresSslOptions as PostgresSslOptions };
}

/** `syncguard/firestore` */

/** `lock()` bound to a Firestore backend: see {@link createFirestoreBackend}. */
declare function createLock$1(db?: FirestoreClient | FirestoreConnectionOptions, options?: FirestoreBackendOptions): BoundLock<FirestoreCapabilities>;

type firestore_FirestoreBackendOptions = FirestoreBackendOptions;
type firestore_FirestoreCapabilities = FirestoreCapabilities;
type firestore_FirestoreClient = FirestoreClient;
type firestore_FirestoreConfig = FirestoreConfig;
type firestore_FirestoreConnectionOptions = FirestoreConnectionOptions;
type firestore_LockDocument = LockDocument;
declare const firestore_createFirestoreBackend: typeof createFirestoreBackend;
declare namespace firestore {
  export { firestore_createFirestoreBackend as createFirestoreBackend, createLock$1 as createLock };
  export type { firestore_FirestoreBackendOptions as FirestoreBackendOptions, firestore_FirestoreCapabilities as FirestoreCapabilities, firestore_FirestoreClient as FirestoreClient, firestore_FirestoreConfig as FirestoreConfig, firestore_FirestoreConnectionOptions as FirestoreConnectionOptions, firestore_LockDocument as LockDocument };
}

/** `syncguard/sqlite` */

/** `lock()` bound to a SQLite backend: see {@link createSqliteBackend}. */
declare function createLock(path: string, options?: SqliteBackendOptions): BoundLock<SqliteCapabilities>;
/** The same, with the path among the options. */
declare function createLock(options?: SqliteBackendOptions): BoundLock<SqliteCapabilities>;

type sqlite_SqliteBackendOptions = SqliteBackendOptions;
type sqlite_SqliteCapabilities = SqliteCapabilities;
declare const sqlite_createLock: typeof createLock;
declare const sqlite_createSqliteBackend: typeof createSqliteBackend;
declare namespace sqlite {
  export { sqlite_createLock as createLock, sqlite_createSqliteBackend as createSqliteBackend };
  export type { sqlite_SqliteBackendOptions as SqliteBackendOptions, sqlite_SqliteCapabilities as SqliteCapabilities };
}

/** The parts of the Forrst protocol's requests and responses that the atomic-lock extension uses. */

/** An extension in a request (`options`) or in a response (`data`). */
interface ForrstExtension {
    /** Which extension. */
    readonly urn: string;
    /** In requests. */
    readonly options?: unknown;
    /** In responses. */
    readonly data?: unknown;
}
/** A request. It may have more members. */
interface ForrstRequest {
    /** `{ name: "forrst", version: "0.1.0" }` */
    readonly protocol?: unknown;
    /** Copied into the response. */
    readonly id?: unknown;
    /** Which function, and with what. */
    readonly call: {
        readonly function: string;
        readonly version?: unknown;
        readonly arguments?: unknown;
    };
    /** The extensions that the request uses. */
    readonly extensions?: readonly ForrstExtension[] | undefined;
}
/** An error in a response. */
interface ForrstError {
    /** For programs. */
    readonly code: string;
    /** For people. */
    readonly message: string;
    /** What it is about. */
    readonly details?: unknown;
    /**
     * Whether the same request may succeed later. On errors of this package it is not enumerable: servers can read it, but
     * it is not in the JSON, as the extension's errors have no such member.
     */
    readonly retryable?: boolean;
}
/** A response. It may have more members. */
interface ForrstResponse {
    /** As in the request. */
    readonly protocol?: unknown;
    /** As in the request. */
    readonly id?: unknown;
    /** What the function returned; `null` if it failed. */
    readonly result?: unknown;
    /** What went wrong. */
    readonly errors?: readonly ForrstError[] | undefined;
    /** The data of extensions. */
    readonly extensions?: readonly ForrstExtension[] | undefined;
}
/** The lock that a function runs under. */
type AtomicLockHandle<C extends BackendCapabilities = BackendCapabilities> = LockHandleMembers<C> & {
    /** The signal that the call was given. */
    readonly signal: AbortSignal | undefined;
    /** Who may release it from another process. */
    readonly owner: string;
};
/** Options of one call of `handle` or of a system function. */
interface AtomicLockCallOptions {
    /**
     * Ends the waiting for the lock. It is also in the handle that the function gets, which should stop when it is aborted.
     * The lock is released either way.
     */
    readonly signal?: AbortSignal | undefined;
}
/** Options of {@link createAtomicLock}. */
interface AtomicLockOptions {
    /**
     * Whether a request may force a release. Only `true` allows it; without this option, no request may.
     *
     * If it throws, the call is rejected with that, and the lock stays.
     */
    readonly authorize?: ((request: ForrstRequest) => boolean | Promise<boolean>) | undefined;
    /** Called when an automatic release fails; the response stays the same. Default: as for `lock()`. */
    readonly onReleaseError?: OnReleaseError | undefined;
}
/** A system function of the extension. */
type AtomicLockFunction = (request: ForrstRequest, options?: AtomicLockCallOptions) => Promise<ForrstResponse>;
/** The names of the system functions. */
type AtomicLockFunctionName = "urn:cline:forrst:ext:atomic-lock:fn:release" | "urn:cline:forrst:ext:atomic-lock:fn:force-release" | "urn:cline:forrst:ext:atomic-lock:fn:status";
/** The atomic-lock extension of a server. */
interface AtomicLock<C extends BackendCapabilities = BackendCapabilities> {
    /** The extension's name on the wire. */
    readonly urn: "urn:forrst:ext:atomicLock";
    /** The system functions by their names, for servers with their own routing. */
    readonly functions: Readonly<Record<AtomicLockFunctionName, AtomicLockFunction>>;
    /**
     * Serves a request: takes the lock that it asks for, calls `next`, adds the extension's data to the response, and
     * releases the lock. A request that does not use the extension is handed to `next` as it is, and its response is
     * returned as it is.
     * A call of a system function is answered without `next`.
     *
     * If `next` throws, the lock is released and the caller gets the same error. Bad options, contention and the errors of
     * the system functions become responses with `errors`.
     *
     * @param request - the request; it is not changed
     * @param next - the server's own handling; gets the same request, and the lock if the request asked for one
     * @throws LockError the store's error; `Aborted` if `options.signal` ended the waiting
     */
    handle<Request extends ForrstRequest>(request: Request, next: (request: Request, lock: AtomicLockHandle<C> | undefined) => ForrstResponse | Promise<ForrstResponse>, options?: AtomicLockCallOptions): Promise<ForrstResponse>;
}

/** `syncguard/forrst`: the atomic-lock extension of Forrst, `urn:forrst:ext:atomicLock`. */

/**
 * The atomic-lock extension for a Forrst server, on any backend of this package.
 *
 * @param backend - where the locks are kept; servers exclude each other only if they use the same store
 * @throws LockError `InvalidArgument` for invalid options, and for a backend of your own that only implements
 *   `LockBackend`, because it has no owner labels
 */
declare function createAtomicLock<C extends BackendCapabilities>(backend: SyncGuardBackend<C>, options?: AtomicLockOptions): AtomicLock<C>;

type forrst_AtomicLock<C extends BackendCapabilities = BackendCapabilities> = AtomicLock<C>;
type forrst_AtomicLockCallOptions = AtomicLockCallOptions;
type forrst_AtomicLockFunction = AtomicLockFunction;
type forrst_AtomicLockFunctionName = AtomicLockFunctionName;
type forrst_AtomicLockHandle<C extends BackendCapabilities = BackendCapabilities> = AtomicLockHandle<C>;
type forrst_AtomicLockOptions = AtomicLockOptions;
type forrst_ForrstError = ForrstError;
type forrst_ForrstExtension = ForrstExtension;
type forrst_ForrstRequest = ForrstRequest;
type forrst_ForrstResponse = ForrstResponse;
declare const forrst_createAtomicLock: typeof createAtomicLock;
declare namespace forrst {
  export { forrst_createAtomicLock as createAtomicLock };
  export type { forrst_AtomicLock as AtomicLock, forrst_AtomicLockCallOptions as AtomicLockCallOptions, forrst_AtomicLockFunction as AtomicLockFunction, forrst_AtomicLockFunctionName as AtomicLockFunctionName, forrst_AtomicLockHandle as AtomicLockHandle, forrst_AtomicLockOptions as AtomicLockOptions, forrst_ForrstError as ForrstError, forrst_ForrstExtension as ForrstExtension, forrst_ForrstRequest as ForrstRequest, forrst_ForrstResponse as ForrstResponse };
}

export { BACKEND_DEFAULTS, BACKEND_LIMITS, FAILURE_REASON, FENCE_THRESHOLDS, LOCK_DEFAULTS, LockError, MAX_KEY_LENGTH_BYTES, RESERVE_BYTES, TIME_TOLERANCE_MS, acquireHandle, attachRawData, calculateRedisServerTimeMs, checkAborted, createAutoLock, createDisposableHandle, createFirestoreBackend, createPostgresBackend, createRedisBackend, createSqliteBackend, decorateAcquireResult, delay, firestore, formatFence, forrst, generateLockId, getById, getByIdRaw, getByKey, getByKeyRaw, hasFence, hashKey, isLive, lock, logFenceWarning, makeStorageKey, mapBackendObservation, mapFirestoreConditions, mapRedisScriptResult, mapToMutationResult, mergeAcquisitionConfig, mergeBackendConfig, normalizeAndValidateKey, owns, postgres, redis, sanitizeLockInfo, setDefaultBackend, sqlite, validateLockId, withTelemetry };
export type { AcquireOk, AcquireResult, AcquisitionOptions, AcquisitionPolicy, AsyncLock, AutoExtend, AutoExtendOptions, BackendCapabilities, BackendConfig, BackendLockOptions, BoundLock, CommonBackendOptions, DecoratedAcquireResult, DisposableLockHandle, ExtendResult, Fence, FencingCapabilities, HashId, HeldLock, KeyLookup, KeyOp, LockBackend, LockBackendLike, LockConfig, LockErrorCode, LockErrorContext, LockEvent, LockHandle, LockInfo, LockInfoDebug, LockOp, LookupOptions, MutationCondition, MutationReason, MutationResult, OnReleaseError, OwnershipLookup, RawIdentifiers, RawLockData, ReleaseResult, SyncGuardBackend, TelemetryOptions };
