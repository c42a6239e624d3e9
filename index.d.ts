// The whole public API, made by `npm run build:api`. Which entry point exports what:
//
// syncguard
//   AcquireMethod AcquireOk AcquireOptions AcquireResult AcquisitionOptions AsyncLock AutoExtend
//   AutoExtendOptions BACKEND_DEFAULTS BACKEND_LIMITS BackendCapabilities BackendLockOptions
//   BackendTransport BoundLock Claim Claims ClosableLock CommonBackendOptions DecoratedAcquireResult
//   DiagnosticsMessage DisposableLockHandle ExtendResult FENCE_THRESHOLDS Fence FencingCapabilities
//   FirestoreDone FirestoreGuard FirestoreTransaction GrantedLock GuardQuery HashId HeldLock
//   HeldLocks HeldSlot KeyLookup KeyOp LOCK_DEFAULTS LeadOptions Leadership LockBackend
//   LockBackendLike LockConfig LockConfigOf LockError LockErrorCode LockErrorContext LockEvent
//   LockHandle LockInfo LockInfoDebug LockMethod LockMode LockOp LockSet LocksHandle LocksOp
//   LookupOptions MAX_KEY_LENGTH_BYTES ModeClaim OfSlot OnLeadError OnLost OnReleaseError OnceHandle
//   OnceMethod OnceOptions OnceResult OwnershipLookup PostgresDone PostgresGuard PostgresTransaction
//   RESERVE_BYTES RawLockData RedisEvalOptions RedisGuard RedisReply ReleaseAllOptions
//   ReleaseAllResult ReleaseResult SlotClaim SlotConfig SlotHandle StoreMembers SyncGuardBackend
//   TIME_TOLERANCE_MS TelemetryOptions TryLockMethod TryLockOptions TryLockResult acquireHandle
//   calculateRedisServerTimeMs createFirestoreBackend createPostgresBackend createRedisBackend
//   createSqliteBackend decorateAcquireResult generateLockId getById getByIdRaw getByKey getByKeyRaw
//   hasFence hashKey isLive lead lock makeStorageKey normalizeAndValidateKey once owns
//   sanitizeLockInfo setDefaultBackend validateLockId withTelemetry
//
// syncguard/common
//   AcquireOk AcquireResult AcquisitionOptions AcquisitionPolicy AsyncLock AutoExtend
//   AutoExtendOptions BACKEND_DEFAULTS BACKEND_LIMITS BackendCapabilities BackendConfig
//   BackendLockOptions BackendTransport BoundLock ClosableLock CommonBackendOptions
//   DecoratedAcquireResult DiagnosticsMessage DisposableLockHandle ExtendResult FAILURE_REASON
//   FENCE_THRESHOLDS Fence FencingCapabilities HashId HeldLock KeyLookup KeyOp LOCK_DEFAULTS
//   LeadOptions Leadership LockBackend LockBackendLike LockConfig LockError LockErrorCode
//   LockErrorContext LockEvent LockHandle LockInfo LockInfoDebug LockOp LookupOptions
//   MAX_KEY_LENGTH_BYTES MutationCondition MutationReason MutationResult OnLeadError OnLost
//   OnReleaseError OnceHandle OnceMethod OnceOptions OnceResult OwnershipLookup RESERVE_BYTES
//   RawIdentifiers RawLockData ReleaseAllOptions ReleaseAllResult ReleaseResult SyncGuardBackend
//   TIME_TOLERANCE_MS TelemetryOptions TryLockMethod TryLockOptions TryLockResult acquireHandle
//   attachRawData calculateRedisServerTimeMs checkAborted createAutoLock createDisposableHandle
//   decorateAcquireResult delay formatFence generateLockId getById getByIdRaw getByKey getByKeyRaw
//   hasFence hashKey isLive lead lock logFenceWarning makeStorageKey mapBackendObservation
//   mapFirestoreConditions mapRedisScriptResult mapToMutationResult mergeAcquisitionConfig
//   mergeBackendConfig normalizeAndValidateKey once owns sanitizeLockInfo setDefaultBackend
//   validateLockId withTelemetry
//
// syncguard/redis
//   LockData RedisBackendOptions RedisCapabilities RedisClient RedisClusterNode RedisConfig
//   RedisConnectionOptions RedisTlsOptions createLock createRedisBackend
//
// syncguard/postgres
//   GuardQuery PgClient PostgresBackendOptions PostgresCapabilities PostgresClient PostgresConfig
//   PostgresConnectionOptions PostgresDone PostgresGuard PostgresJsClient PostgresSchemaOptions
//   PostgresSslOptions PostgresTransaction createLock createPostgresBackend setupSchema
//
// syncguard/firestore
//   FirestoreBackendOptions FirestoreCapabilities FirestoreClient FirestoreConfig
//   FirestoreConnectionOptions FirestoreDone FirestoreGuard FirestoreTransaction LockDocument
//   createFirestoreBackend createLock
//
// syncguard/sqlite
//   SqliteBackendOptions SqliteCapabilities createLock createSqliteBackend
//
// syncguard/forrst
//   AtomicLock AtomicLockCallOptions AtomicLockFunction AtomicLockFunctionName AtomicLockHandle
//   AtomicLockOptions ForrstError ForrstExtension ForrstRequest ForrstResponse createAtomicLock
//
// syncguard/redlock
//   Client ClientExecutionResult ExecutionError ExecutionResult ExecutionStats Lock Redlock
//   RedlockAbortSignal RedlockSettings ResourceLockedError Settings default
//
// syncguard/testing
//   Clock FaultyOperation TestBackend TestBackendOptions TestCapabilities TestClock TestFaults Timer
//   createTestBackend
//
// syncguard/dashboard
//   Dashboard DashboardOptions createDashboard
//
// syncguard/otel
//   InstrumentOptions instrument
//
// Below, the exports of the backends' entry points are in namespaces of their names.

import { EventEmitter } from 'node:events';
import { IncomingMessage, ServerResponse } from 'node:http';
import { MeterProvider, TracerProvider } from '@opentelemetry/api';

/** Which way a backend takes to its server, and why. */
interface BackendTransport {
    /**
     * - `"native"`: over connections of this package. Waiters hear of releases, and locks are extended also while the event loop
     *   is blocked.
     * - `"client"`: through the methods of your client. Waiters poll, and a blocked event loop stops extensions.
     */
    readonly way: "native" | "client";
    /** Why, for people. It names settings and shows no values. */
    readonly reason: string;
}

/** What a backend can do. */
interface BackendCapabilities {
    /** Whether each acquisition comes with a fencing token. */
    supportsFencing: boolean;
    /** Whose clock decides when a lock ends. */
    timeAuthority: "server" | "client";
}
/** The capabilities of a backend with fencing tokens. */
interface FencingCapabilities extends BackendCapabilities {
    /** Each acquisition comes with a fencing token. */
    supportsFencing: true;
}

/** What locks in Firestore can do besides. The function needs no `this` and may be destructured. */
interface FirestoreGuard {
    /**
     * Reads the lock in a transaction of yours, in the database of the locks: if somebody takes it over before the transaction is
     * committed, Firestore runs your function again, and then this fails. So what is committed was written by the holder.
     *
     * Call it before the first write, as every read of a transaction.
     *
     * @param tx - a `Transaction` of `@google-cloud/firestore`
     * @throws LockError `LockLost` if the lock is not held any more, of which its `signal` hears, too; `InvalidArgument` for what is no
     *   transaction, or one of another database; or the error of your client
     * @example
     * ```ts
     * import { Firestore } from "@google-cloud/firestore";
     * import { createFirestoreBackend } from "syncguard/firestore";
     *
     * const db = new Firestore();
     * const backend = createFirestoreBackend(db);
     * await using held = await backend.lock("account:1");
     * await db.runTransaction(async (tx) => {
     *   await held.guard(tx);
     *   tx.update(db.doc("accounts/1"), { checked: true });
     * });
     * ```
     */
    readonly guard: (tx: FirestoreTransaction) => Promise<void>;
}
/** What the lock of `once()` in Firestore can do besides. The function needs no `this` and may be destructured. */
interface FirestoreDone {
    /**
     * As {@link FirestoreGuard.guard}, and stores in your transaction that the period is done: if the transaction is committed, it is, and
     * never again; else nothing of either is there. So what the transaction writes is done exactly once.
     *
     * It reads and writes, so call it after your reads and before your writes. Then let the function end, which frees the lock.
     *
     * @param tx - a `Transaction` of `@google-cloud/firestore`
     * @throws LockError as {@link FirestoreGuard.guard}
     * @example
     * ```ts
     * import { Firestore } from "@google-cloud/firestore";
     * import { createFirestoreBackend } from "syncguard/firestore";
     *
     * const db = new Firestore();
     * const backend = createFirestoreBackend(db);
     * await backend.once("report", { due: "2026-11" }, async ({ done }) => {
     *   await db.runTransaction(async (tx) => {
     *     await done(tx);
     *     tx.set(db.doc("reports/2026-11"), { sum: 42 });
     *   });
     * });
     * ```
     */
    readonly done: (tx: FirestoreTransaction) => Promise<void>;
}
/** A `Transaction` of `@google-cloud/firestore`. */
interface FirestoreTransaction {
    /** Reads a document. */
    get: (...args: never[]) => unknown;
    /** Reads several documents. */
    getAll: (...args: never[]) => unknown;
}

/** What locks in PostgreSQL can do besides. The functions need no `this` and may be destructured. */
interface PostgresGuard {
    /**
     * Checks in a transaction of yours, in the database of the locks, that the lock is held, or all of several, and keeps it from being
     * taken over until the transaction ends, however long that takes: what is committed was written by the holder. One round trip.
     *
     * If the lock is gone, the transaction has failed, so that it cannot be committed even if the error is caught, also if `tx` is a
     * savepoint in it.
     *
     * @param tx - what postgres.js' `sql.begin()` gives, or a `Client` or `PoolClient` of pg after its `BEGIN`; for others there is
     *   {@link PostgresGuard.guardQuery}
     * @throws LockError `LockLost` if the lock is not held any more, of which its `signal` hears, too; `InvalidArgument` for what is no
     *   transaction, or one of another database, and where the index on `lock_id` is missing; `ServiceUnavailable` if the
     *   transaction's snapshot is older than the lock's last extension (`REPEATABLE READ`, `SERIALIZABLE`): run it again;
     *   `AuthFailed` if the role of the transaction has not the rights, or row level security hides the lock from it; or the error of
     *   your client
     * @example
     * ```ts
     * import postgres from "postgres";
     * import { createPostgresBackend } from "syncguard/postgres";
     *
     * const sql = postgres("postgres://app:secret@localhost/app");
     * const backend = createPostgresBackend(sql);
     * await using held = await backend.lock("account:1");
     * await sql.begin(async (tx) => {
     *   await held.guard(tx);
     *   await tx`UPDATE accounts SET balance = balance - 10 WHERE id = 1`;
     * });
     * ```
     */
    readonly guard: (tx: PostgresTransaction) => Promise<void>;
    /**
     * The statement of {@link PostgresGuard.guard}, for clients that it does not know: run it in your outermost transaction, before or
     * after its writes. Outside of a transaction it protects nothing. It fails if the lock is gone, with a message that contains `LockLost`,
     * and the transaction with it, but in a savepoint the savepoint alone; otherwise it gives a row that need not be looked at.
     *
     * @throws LockError `LockLost` if it is known already
     * @example
     * ```ts
     * import { createPostgresBackend } from "syncguard/postgres";
     *
     * const backend = createPostgresBackend("postgres://app:secret@localhost/app");
     * await using held = await backend.lock("account:1");
     * const { text, values } = held.guardQuery();
     * console.log(text, values); // for Prisma: tx.$queryRawUnsafe(text, ...values)
     * ```
     */
    readonly guardQuery: () => GuardQuery;
    /**
     * Whether an error that your client threw is that of a guard that refused: the server's error is found in those of Prisma, Drizzle,
     * Kysely, Knex and TypeORM. If so, the store is asked for the lock, and `signal` is aborted if the lock is gone.
     *
     * @param error - what was thrown by your transaction
     * @example
     * ```ts
     * import { createPostgresBackend } from "syncguard/postgres";
     *
     * declare const transaction: (text: string, values: string[]) => Promise<void>;
     * const backend = createPostgresBackend("postgres://app:secret@localhost/app");
     * await using held = await backend.lock("account:1");
     * const { text, values } = held.guardQuery();
     * try {
     *   await transaction(text, values);
     * } catch (error) {
     *   if (!(await held.guardFailed(error))) throw error;
     *   console.log("nothing was written", held.signal.aborted);
     * }
     * ```
     */
    readonly guardFailed: (error: unknown) => Promise<boolean>;
}
/** What the lock of `once()` in PostgreSQL can do besides. The functions need no `this` and may be destructured. */
interface PostgresDone {
    /**
     * As {@link PostgresGuard.guard}, and stores in your transaction that the period is done: if the transaction is committed, it is, and
     * never again; else nothing of either is there. So what the transaction writes is done exactly once.
     *
     * Call it last: who wants the lock when its time is over waits from then on until the transaction ends. Then let the function
     * end, which frees the lock.
     *
     * @param tx - as for {@link PostgresGuard.guard}
     * @throws LockError as {@link PostgresGuard.guard}; `InvalidArgument` also if the table of fence counters has no columns for it
     * @example
     * ```ts
     * import postgres from "postgres";
     * import { createPostgresBackend } from "syncguard/postgres";
     *
     * const sql = postgres("postgres://app:secret@localhost/app");
     * const backend = createPostgresBackend(sql);
     * await backend.once("interest", { due: "2026-11" }, async ({ done }) => {
     *   await sql.begin(async (tx) => {
     *     await tx`UPDATE accounts SET balance = balance * 1.01`;
     *     await done(tx);
     *   });
     * });
     * ```
     */
    readonly done: (tx: PostgresTransaction) => Promise<void>;
    /**
     * The statement of {@link PostgresDone.done}, for clients that it does not know: run it in your outermost transaction, after its writes.
     *
     * @throws LockError `LockLost` if it is known already
     * @example
     * ```ts
     * import { createPostgresBackend } from "syncguard/postgres";
     *
     * const backend = createPostgresBackend("postgres://app:secret@localhost/app");
     * await backend.once("interest", { due: "2026-11" }, ({ doneQuery }) => {
     *   const { text, values } = doneQuery();
     *   console.log(text, values); // for Prisma: tx.$queryRawUnsafe(text, ...values)
     * });
     * ```
     */
    readonly doneQuery: () => GuardQuery;
}
/** A statement for a transaction of yours. */
interface GuardQuery {
    /** The SQL, with `$1` … for the values. */
    text: string;
    /** The values, all of them texts. */
    values: string[];
}
/** A transaction of postgres.js, or a pg `Client` or `PoolClient` in one. */
type PostgresTransaction = {
    /** Runs a statement. */
    unsafe: (...args: never[]) => unknown;
    /** What tells a transaction from the instance. */
    savepoint: (...args: never[]) => unknown;
} | {
    /** Runs a statement. */
    query: (...args: never[]) => unknown;
    /** A pool has none. */
    escapeIdentifier: (...args: never[]) => unknown;
};

/**
 * What went wrong: one of nine codes that mean the same on every backend
 * (docs/errors.md).
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
    /**
     * The lock's key; of several, that of the one that is gone, or else of the first that was not released by its id; of
     * `AcquisitionTimeout`, that of the one that stood in the way.
     */
    key?: string | undefined;
    /** The lock's id; of several as for the key. */
    lockId?: string | undefined;
    /**
     * Of `AcquisitionTimeout`, where the store has said so: milliseconds until the lock that stood in the way ends by itself and somebody
     * else can have it. Its holder may release it before, or extend it.
     */
    retryAfterMs?: number | undefined;
    /** Of `AcquisitionTimeout`: the label with which somebody has taken that lock. */
    owner?: string | undefined;
    /** Of several locks, the keys of all. */
    keys?: readonly string[] | undefined;
    /** Of several locks, the ids of all. */
    lockIds?: readonly string[] | undefined;
    /** The error underneath. */
    cause?: unknown;
}
/**
 * The error type of this package: every rejection that is not an error of your own callback has it.
 *
 * `instanceof` recognises the errors of every entry point, of ESM and CommonJS, and of a second installed copy. The key
 * and the lock id are in `context`, and neither in the message nor in what `console.log` prints.
 *
 * @example
 * ```ts
 * import { lock, LockError } from "syncguard";
 *
 * try {
 *   await lock(() => console.log("writing"), { key: "report:nightly" });
 * } catch (error) {
 *   if (!(error instanceof LockError)) throw error; // what your function threw
 *   if (error.code === "AcquisitionTimeout") console.log("somebody else is on it");
 *   else console.error(error.code, error.message);
 * }
 * ```
 */
declare class LockError extends Error {
    /** What went wrong. */
    code: LockErrorCode;
    /** What it is about, when known. Not enumerable, so that printing the error shows no key. */
    context?: LockErrorContext | undefined;
    /**
     * An error for a backend of your own to throw.
     *
     * @param code - what went wrong
     * @param message - for people; the code by default
     * @param context - what the error is about; `context.cause` also becomes the error's `cause`
     */
    constructor(code: LockErrorCode, message?: string, context?: LockErrorContext);
    /** Recognises the errors of other copies of this class. Subclasses behave as usual. */
    static [Symbol.hasInstance](value: unknown): boolean;
}

/** What locks in Redis can do besides. */
interface RedisGuard {
    /**
     * Runs your Lua only if the lock is held, by the server's clock: in one atomic step with the check, and one round trip. Of
     * several locks, all must be held. A holder that was stopped for longer than its TTL changes nothing.
     *
     * The script is sent as it is, and sees its own `KEYS` and `ARGV`, from 1 on. Its text is code: what comes from elsewhere
     * belongs into `keys` and `arguments`. After the first time only its hash is sent.
     *
     * @param script - Lua, as for `EVAL`
     * @returns what the script returns: see {@link RedisReply}
     * @throws LockError `LockLost` if the lock is not held any more: nothing of the script has run, and `signal` is aborted;
     *   `InvalidArgument` that names the argument, for a script that the server cannot compile, and in a Redis Cluster for keys in
     *   another hash slot than the lock; `Internal` with the server's own words for what the script fails with, after which what
     *   it has written before stays; `Aborted` if the signal came first; or the store's error. A script is sent once at most:
     *   where its answer is lost, the message ends with "the script may have run"
     * @example
     * ```ts
     * import { createRedisBackend } from "syncguard/redis";
     *
     * const backend = createRedisBackend("redis://localhost:6379");
     * await using held = await backend.lock("account:1");
     * const balance = await held.eval("return redis.call('INCRBY', KEYS[1], ARGV[1])", {
     *   keys: ["balance:1"],
     *   arguments: [25],
     * });
     * console.log("the balance is", balance);
     * ```
     */
    readonly eval: (script: string, options?: RedisEvalOptions) => Promise<RedisReply>;
}
/** What a script is given. */
interface RedisEvalOptions {
    /**
     * The names of your data that the script touches, as they are in the server; the script's `KEYS`. Where the backend was given a
     * client of ioredis with a `keyPrefix`, or `clientKeyPrefix`, that is put before each, as ioredis does it. The backend's own
     * `keyPrefix` is not.
     */
    readonly keys?: readonly string[] | undefined;
    /** What else the script is given, as texts; the script's `ARGV`. */
    readonly arguments?: readonly (string | number)[] | undefined;
    /** Cancels the call, which is then rejected with `Aborted`; the script may have run. */
    readonly signal?: AbortSignal | undefined;
}
/**
 * What a script returns, as ioredis and node-redis give it: a number of Lua as a whole number, a text or a status as a text, `nil`
 * and `false` as `null`, `true` as `1`, a table as an array to its first `nil`, an error within a table as an error.
 */
type RedisReply = string | number | null | LockError | RedisReply[];

/** A fencing token: 15 decimal digits, zero-padded, so that comparing strings compares numbers. */
type Fence = string;
/** 24 lower-case hexadecimal digits by which a key or a lock id can be recognised. Not secure: see `hashKey`. */
type HashId = string;
/** Names a lock by its key. */
type KeyOp = Readonly<{
    /** Names what the lock protects: at most 512 bytes of UTF-8 after NFC normalisation. */
    key: string;
    /** Cancels the operation, which is then rejected with `Aborted`. */
    signal?: AbortSignal | undefined;
}>;
/** Names a lock by the id that its acquisition returned. */
type LockOp = Readonly<{
    /** The id that the acquisition returned: 22 characters of base64url. */
    lockId: string;
    /** Cancels the operation, which is then rejected with `Aborted`; the store may have carried it out. */
    signal?: AbortSignal | undefined;
}>;
/** Names several locks by the ids that their acquisition returned. */
type LocksOp = Readonly<{
    /** The ids that the acquisition returned: at most 100. */
    lockIds: readonly string[];
    /** Cancels the operation, which is then rejected with `Aborted`; the store may have carried it out. */
    signal?: AbortSignal | undefined;
}>;
/** How a key is locked: by any number of shared holders, or by one exclusive holder. */
type LockMode = "shared" | "exclusive";
/** What is asked of one key: the lock on it, or slots of it. A text alone stands for the lock, in exclusive mode. */
type Claim = Readonly<{
    /** Names what the lock protects: at most 512 bytes of UTF-8 after NFC normalisation. */
    key: string;
    /**
     * `"shared"` to hold the lock together with all others who share it: whoever wants it alone waits until they have released it. A
     * shared lock cannot become an exclusive one: release it, and ask for that. Not with slots. Default `"exclusive"`.
     */
    mode?: LockMode | undefined;
    /**
     * At most so many hold a slot of the key at a time; 1 to 1000. The limit is that of whoever asks: where different ones are in
     * use, there are never more holders than the largest of them says. Slots have nothing to do with the lock on the key itself.
     */
    slots?: number | undefined;
    /** How many slots to take, or none: at most 100. Default 1. */
    take?: number | undefined;
}>;
/** A claim of one slot. */
type SlotClaim = Readonly<{
    /** The key of the slots. */
    key: string;
    /** At most so many hold a slot of the key at a time; 1 to 1000. */
    slots: number;
    /** With it, several are asked for: {@link Claim}. */
    take?: undefined;
    /** Slots are not shared. */
    mode?: undefined;
}>;
/** A claim of the lock on a key, perhaps in shared mode. */
type ModeClaim = Readonly<{
    /** Names what the lock protects. */
    key: string;
    /** Whether others may hold it, too: {@link Claim}. */
    mode: LockMode;
    /** With them, slots are asked for: {@link Claim}. */
    slots?: undefined;
    /** With it, several slots are asked for: {@link Claim}. */
    take?: undefined;
}>;
/** Several claims, all or nothing: at most 100 locks. A key that is there twice is one key. */
type Claims = readonly (string | Claim)[];
/** One of several locks that were granted together. */
type GrantedLock = {
    /** The key as given. */
    readonly key: string;
    /** The number of the slot, from 1 on, where a slot was asked for. */
    readonly slot?: number;
    /** Proof of ownership: whoever knows it can release and extend the lock. */
    readonly lockId: string;
    /** The fencing token: larger than that of every earlier lock on the key, or on that slot of it. */
    readonly fence: Fence;
};
/** What several locks show that were granted together. */
type LockSet = {
    /** The locks, in the order of their keys. */
    readonly locks: readonly GrantedLock[];
    /** The fencing token of each key; of several slots of a key, that of the last of them in `locks`. */
    readonly fences: ReadonlyMap<string, Fence>;
    /** Proof of ownership: whoever knows them can release and extend the locks. */
    readonly lockIds: readonly string[];
};
/** Looks up a lock by its key. */
type KeyLookup = {
    /** The key of the lock. */
    key: string;
    /** Cancels the lookup, which is then rejected with `Aborted`. */
    signal?: AbortSignal | undefined;
};
/** Looks up a lock by its lock id. */
type OwnershipLookup = {
    /** The id that the acquisition returned. */
    lockId: string;
    /** Cancels the lookup, which is then rejected with `Aborted`. */
    signal?: AbortSignal | undefined;
};

/** The results of a store's operations. */

/** What is stored with a lock for people and other systems to read. Backends of your own may ignore it. */
interface LockLabels {
    /**
     * A label to store with the lock, at most 255 bytes of UTF-8, by which people see who holds it. Default: the host's name and the id
     * of the process. `null` stores none.
     */
    owner?: string | null | undefined;
}
/** The labels that are stored with a lock. */
type StoredLabels = {
    [Name in keyof LockLabels]?: string;
};

/** A granted lock. Times are milliseconds since the Unix epoch, on the backend's clock. */
type AcquireOk<C extends BackendCapabilities> = {
    /** The lock was granted. */
    ok: true;
    /** Proof of ownership: whoever knows it can release and extend the lock. */
    lockId: string;
    /** When the lock ends. */
    readonly expiresAtMs: number;
} & (C["supportsFencing"] extends true ? {
    /** The fencing token: larger than that of every earlier lock on the key. */
    fence: Fence;
} : {});
/** A granted lock, or `{ ok: false }` because somebody holds it. */
type AcquireResult<C extends BackendCapabilities> = AcquireOk<C> | {
    /** The lock was not granted. */
    ok: false;
    /** Somebody holds it. */
    reason: "locked";
    /**
     * Milliseconds until the lock that stood in the way ends by itself and somebody else can have it, by the store's clock and at
     * that moment; absent if the store has not said so. Its holder may release it before, or extend it.
     */
    retryAfterMs?: number | undefined;
    /** The label with which it was taken, if it has one. */
    owner?: string | undefined;
};
/**
 * Whether the lock was released; `{ ok: false }` if it was gone before.
 *
 * A release whose answer was lost is repeated. If the store then has no such lock, the one before counts as done: `{ ok: true }`.
 */
type ReleaseResult = {
    /** This call has released the lock. */
    ok: true;
} | {
    /** The lock had ended, was released before, or was taken by somebody else. */
    ok: false;
};
/** When the lock ends now; `{ ok: false }` if it was gone before. */
type ExtendResult = {
    /** The lock was extended. */
    ok: true;
    /** When it ends now, in milliseconds since the Unix epoch, on the backend's clock. */
    expiresAtMs: number;
} | {
    /** The lock had ended, was released before, or was taken by somebody else: it is not yours any more. */
    ok: false;
};
/** A lock as lookups show it: hashes in place of the identifiers. */
type LockInfo<C extends BackendCapabilities> = {
    /** The fingerprint of the key: `hashKey(key)`. */
    keyHash: HashId;
    /** The fingerprint of the lock id: `hashKey(lockId)`. */
    lockIdHash: HashId;
    /** When the lock ends, in milliseconds since the Unix epoch. */
    expiresAtMs: number;
    /** When the lock was granted, in milliseconds since the Unix epoch. */
    acquiredAtMs: number;
} & (C["supportsFencing"] extends true ? {
    /** The fencing token of the lock. */
    fence: Fence;
} : {
    /** The fencing token of the lock, if the backend has them. */
    fence?: Fence;
});
/** A lock with its raw identifiers. Sensitive: for debugging only. */
type LockInfoDebug<C extends BackendCapabilities> = LockInfo<C> & StoredLabels & {
    /** The key. */
    key: string;
    /** The lock id: whoever knows it can release the lock. */
    lockId: string;
};

/// <reference lib="esnext.disposable" preserve="true" />

/** Several locks of a backend of this package, which are extended and released together, and lost when one of them is. */
type HeldLocks<C extends BackendCapabilities = FencingCapabilities> = DisposableLockHandle & Assertable & StoreMembers<C> & LockSet & {
    /** The locks were granted. */
    ok: true;
    /** When the first of them ends, in milliseconds since the Unix epoch; `extend` and heartbeats update it. */
    readonly expiresAtMs: number;
    /** Always there: pass it to what the locks protect. Its reason names the lock that was lost. */
    readonly signal: AbortSignal;
};
/** A slot of a backend of this package. */
type HeldSlot<C extends BackendCapabilities = FencingCapabilities> = HeldLock<C> & {
    /** Its number, from 1 on. */
    readonly slot: number;
};
/** What can say at any moment whether a lock is held. */
interface Assertable {
    /**
     * Throws unless the lock is held at this moment, as far as this process can know: by its monotonic clock, and for a lock that extends
     * itself by what the heartbeats have found out. It asks nobody and takes less than a microsecond: call it directly before each effect.
     * A process that was stopped, or whose event loop was blocked, comes back in the middle of its work.
     *
     * @throws LockError `LockLost`: the reason of the lock's `signal`; also once the lock was released
     * @example
     * ```ts
     * const held = await backend.lock("report:nightly", { autoExtend: true });
     * for (const part of ["summary", "details"]) {
     *   held.assertHeld();
     *   console.log("writing", part, "under fence", held.fence);
     * }
     * await held.release();
     * ```
     */
    readonly assertHeld: () => void;
}
/** What a granted lock can do, and what becomes of it. The functions need no `this` and may be destructured. */
interface DisposableLockHandle {
    /**
     * Frees the lock, at most once: later calls return `{ ok: false }` and do nothing. If the lock was lost, `{ ok: false }`, too,
     * whatever is freed.
     *
     * It is repeated for `operationTimeoutMs` while the store cannot be reached, and after an error in the background until the lock
     * is free or its TTL is over.
     *
     * @throws LockError the store's error; `Aborted` with a signal that is already aborted, which does not count as a call:
     *   the lock can still be released
     * @example
     * ```ts
     * const held = await backend.lock("report:nightly");
     * try {
     *   console.log("working under fence", held.fence);
     * } finally {
     *   // The work is done even if its lock cannot be released.
     *   await held.release().catch(console.error);
     * }
     * ```
     */
    release: (signal?: AbortSignal) => Promise<ReleaseResult>;
    /**
     * Makes the lock end `ttlMs` milliseconds from now, whatever was left of it.
     *
     * @returns `{ ok: false }` if the lock is gone, or {@link signal} has said that it is lost: stop what it protects
     * @throws LockError `InvalidArgument` for a `ttlMs` that is no positive whole number; `Aborted` if the signal came first;
     *   or the store's error
     * @example
     * ```ts
     * const { ok } = await held.extend(60_000);
     * if (!ok) throw new Error("the lock was lost: stop");
     * ```
     */
    extend: (ttlMs: number, signal?: AbortSignal) => Promise<ExtendResult>;
    /**
     * Frees the lock if it has not been released. Never throws: the error of a failed release goes to `onReleaseError`, even
     * if it comes after `disposeTimeoutMs`.
     *
     * @example
     * ```ts
     * {
     *   await using held = await backend.lock("report:nightly");
     *   console.log("working under fence", held.fence);
     * } // released here
     * ```
     */
    [Symbol.asyncDispose](): Promise<void>;
    /**
     * Aborted when the lock is lost, with a `LockError` of the code `LockLost` as its reason. Without `autoExtend` that is when
     * its time is over. A lock that was released is not lost, unless its release finds that it was gone before its time was over.
     *
     * Every handle of this package has it. Results without a lock have none, and those that a backend of your own makes by itself
     * need none.
     */
    readonly signal?: AbortSignal;
}
/**
 * A lock that is held: the result of an acquisition with the members of a handle. `extend` and heartbeats update its
 * `expiresAtMs`.
 */
type AsyncLock<C extends BackendCapabilities = BackendCapabilities> = AcquireOk<C> & DisposableLockHandle;
/**
 * A lock of a backend of this package: an {@link AsyncLock} that knows its key and surely has its signal. What is spread of it has
 * both, too.
 */
type HeldLock<C extends BackendCapabilities = FencingCapabilities> = AsyncLock<C> & Assertable & StoreMembers<C> & {
    /** The key as given. */
    readonly key: string;
    /** Always there: pass it to what the lock protects. */
    readonly signal: AbortSignal;
};
/** What the locks of a store can do besides. */
type StoreMembers<C extends BackendCapabilities> = C extends Record<"backend", "postgres"> ? PostgresGuard : C extends Record<"backend", "firestore"> ? FirestoreGuard : C extends Record<"backend", "redis"> ? RedisGuard : unknown;
/** What the lock of `once()` can do besides, on a store where the work can be done in one transaction with the note that it is. */
type OnceMembers<C extends BackendCapabilities> = C extends Record<"backend", "postgres"> ? PostgresDone : C extends Record<"backend", "firestore"> ? FirestoreDone : unknown;
/** An acquisition's result that can be used with `await using`. Without a lock the methods do nothing. */
type DecoratedAcquireResult<C extends BackendCapabilities> = AsyncLock<C> | ({
    /** The lock was not granted. */
    ok: false;
    /** Somebody holds it. */
    reason: "locked";
    /**
     * Milliseconds until the lock that stood in the way ends by itself and somebody else can have it, by the store's clock and at
     * that moment; absent if the store has not said so. Its holder may release it before, or extend it.
     */
    retryAfterMs?: number | undefined;
    /** The label with which it was taken, if it has one. */
    owner?: string | undefined;
} & DisposableLockHandle);
/** The handle that `lock()` passes to its callback. */
type LockHandle<C extends BackendCapabilities = FencingCapabilities> = LockHandleMembers<C> & StoreMembers<C> & {
    /**
     * Aborted when the lock is lost, with a `LockError` of the code `LockLost` as its reason, and with `config.signal`, for its
     * reason. Without `autoExtend` the lock is lost when its time is over.
     */
    readonly signal: AbortSignal;
};
/** The handle that `once()` passes to its function. */
type OnceHandle<C extends BackendCapabilities = FencingCapabilities> = LockHandle<C> & OnceMembers<C>;
/** What the handles of callbacks have in common. */
type LockHandleMembers<C extends BackendCapabilities = FencingCapabilities> = Assertable & {
    /** The key as given. */
    readonly key: string;
    /** Proof of ownership: whoever knows it can release and extend the lock. */
    readonly lockId: string;
    /** When the lock ends, in milliseconds since the Unix epoch; updated by `extend` and by heartbeats. */
    readonly expiresAtMs: number;
    /**
     * Makes the lock end `ttlMs` milliseconds from now, whatever was left of it.
     *
     * @returns `{ ok: false }` if the lock is gone: stop what it protects
     * @throws LockError `InvalidArgument` for a `ttlMs` that is no positive whole number; `Aborted` if the signal came first;
     *   or the store's error
     * @example
     * ```ts
     * import { lock } from "syncguard";
     *
     * await lock(
     *   async ({ extend }) => {
     *     const { ok } = await extend(60_000);
     *     if (!ok) throw new Error("the lock was lost: stop");
     *   },
     *   { key: "report:nightly" },
     * );
     * ```
     */
    readonly extend: (ttlMs: number, signal?: AbortSignal) => Promise<ExtendResult>;
} & (C["supportsFencing"] extends true ? {
    /** The fencing token: larger than that of every earlier lock on the key. */
    readonly fence: Fence;
} : {
    /** The fencing token, if the backend has them. */
    readonly fence?: Fence;
});
/** The handle that `lock()` passes to its callback where it was given a slot. */
type SlotHandle<C extends BackendCapabilities = FencingCapabilities> = LockHandle<C> & {
    /** Its number, from 1 on. */
    readonly slot: number;
};
/** The handle that `lock()` passes to its callback where it was given claims. */
type LocksHandle<C extends BackendCapabilities = FencingCapabilities> = Pick<HeldLocks, "expiresAtMs" | "signal" | "extend" | "assertHeld"> & StoreMembers<C> & LockSet;
/** What the function of `lead()` is given; with what locks of the store can do besides, as with any lock. */
type Leadership<C extends BackendCapabilities = FencingCapabilities> = Assertable & StoreMembers<C> & {
    /** The key as given. */
    readonly key: string;
    /**
     * Aborted when this process is not to lead any more: with `LockLost` when the lock is lost or `releaseAll()` is called, because then
     * another process may lead already; and with the `signal` of the options, for its reason.
     */
    readonly signal: AbortSignal;
} & (C["supportsFencing"] extends true ? {
    /** The fencing token of the term: larger than that of every earlier term, in whatever process. */
    readonly fence: Fence;
    /** {@link fence} as a number, for logs, metrics and columns of numbers. Terms are not consecutive. */
    readonly term: number;
} : {
    /** The fencing token of the term, if the backend has them. */
    readonly fence?: Fence;
    /** {@link fence} as a number. */
    readonly term?: number;
});

/**
 * Called when a release fails where nothing can be thrown: at the end of an `await using` block or of `lock()`. Without such a
 * function the error is printed, with neither key nor lock id, unless `NODE_ENV` is `production` and `SYNCGUARD_DEBUG` is not
 * `true`.
 *
 * @param error - the error of the release; a thrown value that is not an `Error` is its `originalError`
 * @param context - raw identifiers, and where it happened
 */
type OnReleaseError = (error: Error, context: {
    /** The id of the lock that was not released; of several, of the first that was not released by its id before. */
    lockId: string;
    /** Its key. */
    key: string;
    /** All of them, where several were granted together. */
    locks?: readonly Pick<GrantedLock, "key" | "lockId">[] | undefined;
    /** Where it happened: always at the end of a block or of `lock()`. */
    source: "disposal";
}) => void;
/**
 * Called when a lock is lost: it has ended, or was put out, while it was held. Without such a function the loss is printed, with
 * neither key nor lock id, unless `NODE_ENV` is `production` and `SYNCGUARD_DEBUG` is not `true`.
 *
 * A loss is noticed by heartbeats, by an extension, where the `signal` was asked for at the end of the lock, and in any case by the
 * release, which finds the lock gone.
 *
 * @param error - a `LockError` of the code `LockLost`, which is also the reason of the lock's `signal`
 * @param context - raw identifiers
 */
type OnLost = (error: LockError, context: {
    /** The id of the lock; of several that were granted together, of the one that is gone, or of the first that was not released by its id if all are. */
    lockId: string;
    /** Its key. */
    key: string;
    /** All of them, where several were granted together. */
    locks?: readonly Pick<GrantedLock, "key" | "lockId">[] | undefined;
}) => void;
/** Whether and how a lock extends itself while it is held; `true` for the defaults. */
type AutoExtend = boolean | AutoExtendOptions;
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
    /** Attempts after the first. Default: 10 in `lock()`; no limit in `backend.lock()`. */
    maxRetries?: number | undefined;
    /** Milliseconds before the first retry. Default 100. */
    retryDelayMs?: number | undefined;
    /** Whether the wait doubles each time. Default `"exponential"`. */
    backoff?: "exponential" | "fixed" | undefined;
    /** How far the wait grows, in milliseconds. Default: no limit in `lock()`; 5000 in `backend.lock()`. */
    maxRetryDelayMs?: number | undefined;
    /** How much of the wait is random: half of it, all of it or nothing. Default `"equal"`. */
    jitter?: "equal" | "full" | "none" | undefined;
    /** Milliseconds to wait in all. Default 5000. */
    timeoutMs?: number | undefined;
    /**
     * What ends the wait between two attempts: `"notify"`, the default, when the store tells that the lock was freed, and in
     * any case when the next retry is due; `"poll"` only the latter. An attempt that follows a message is not a retry. While
     * the store tells of releases, retries ask it less and less often, and with `"notify-only"` not before the lock would end
     * by itself: for stores that bill by command.
     */
    wait?: "notify" | "notify-only" | "poll" | undefined;
    /** Ends the waiting; has no effect once the lock is held. */
    signal?: AbortSignal | undefined;
}
/** Which lock `lock()` takes, and how. */
interface LockConfig extends LockLabels {
    /** Names what the lock protects: at most 512 bytes of UTF-8 after NFC normalisation. */
    key: string;
    /** With it, one slot of the key is taken: {@link SlotConfig}. */
    slots?: undefined;
    /** With `"shared"`, others may hold the lock, too, who share it: {@link Claim}. Default `"exclusive"`. */
    mode?: LockMode | undefined;
    /** Milliseconds after which the lock ends by itself. Default 30000. */
    ttlMs?: number | undefined;
    /** Cancels the waiting, and aborts the signal of the callback's handle. It does not affect the release. */
    signal?: AbortSignal | undefined;
    /** Extends the lock by itself while it is held. Default: it ends with its TTL. */
    autoExtend?: AutoExtend | undefined;
    /**
     * Milliseconds for which the lock is held at least, at most `ttlMs`: if the function ends earlier, the lock ends then, and nobody
     * gets it before. Default: it is free as soon as the function has ended.
     */
    minHoldMs?: number | undefined;
    /**
     * Called when the release fails. A failed release never replaces what the callback returned or threw. Default: the
     * backend's, else the error is printed, but not in production: see {@link OnReleaseError}.
     */
    onReleaseError?: OnReleaseError | undefined;
    /** Called when the lock is lost while the function runs. Default: the backend's, else it is printed: see {@link OnLost}. */
    onLost?: OnLost | undefined;
    /**
     * Whether `lock()` is rejected with `LockLost` if the lock was lost while the function ran, in place of what the function
     * returned. What it throws comes first. Default false.
     */
    throwIfLost?: boolean | undefined;
    /** Milliseconds after which the release is aborted and no longer waited for. Default: the backend's, else no limit of its own. */
    disposeTimeoutMs?: number | undefined;
    /** How long and how often to try. */
    acquisition?: AcquisitionOptions | undefined;
}
/** {@link LockConfig} for other things than a key. */
type LockConfigOf<What> = Omit<LockConfig, "key"> & {
    /** What to take. */
    key: What;
};
/** Options that take one slot of the key, beside which they stand, in the place of the lock on it. */
type OfSlot<Options> = Omit<Options, "slots" | "mode"> & {
    /** At most so many hold a slot of the key at a time; 1 to 1000. */
    slots: number;
};
/** {@link LockConfig} for one slot of a key: as a claim, or with `slots` beside the key. */
type SlotConfig = LockConfigOf<SlotClaim> | OfSlot<LockConfig>;
/** How `backend.lock()` takes the lock. */
interface BackendLockOptions extends LockLabels {
    /** With it, one slot of the key is taken: {@link OfSlot}. */
    slots?: undefined;
    /** With `"shared"`, others may hold the lock, too, who share it: {@link Claim}. Default `"exclusive"`. */
    mode?: LockMode | undefined;
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
    /** Called when the lock is lost. Default: the backend's, else it is printed: see {@link OnLost}. */
    onLost?: OnLost | undefined;
    /** Milliseconds after which disposal aborts the release and stops waiting for it. Default: the backend's. */
    disposeTimeoutMs?: number | undefined;
    /**
     * Milliseconds for which the lock is held at least, at most `ttlMs`: if it is released earlier, it ends then, and nobody gets it
     * before. Default: a release frees it at once.
     */
    minHoldMs?: number | undefined;
}
/** How `tryLock()` takes the lock. */
interface TryLockOptions extends Omit<BackendLockOptions, "acquisition"> {
    /** Cancels the attempt, and aborts the signal of the callback's handle. It does not affect the release. */
    signal?: AbortSignal | undefined;
    /**
     * Whether `tryLock()` is rejected with `LockLost` if the lock was lost while the function ran, in place of what the function
     * returned. What it throws comes first. Default false.
     */
    throwIfLost?: boolean | undefined;
}
/** What came of `tryLock()`. */
type TryLockResult<T> = {
    /** The lock was free, and the function ran under it to its end. */
    ran: true;
    /** What the function has returned. */
    value: T;
} | {
    /** Somebody holds the lock: the function did not run. */
    ran: false;
    /** Why. */
    reason: "locked";
    /** Of several keys, the one that is held. */
    key?: string;
    /**
     * Milliseconds until the lock that stood in the way ends by itself; absent if the store has not said so. Its holder may release it
     * before, or extend it.
     */
    retryAfterMs?: number;
    /** The label with which it was taken, if it has one. */
    owner?: string;
};
/**
 * Called when the function of `lead()` has thrown, or a campaign has failed; `lead()` goes on. Without such a function the error is
 * printed, in production, too.
 *
 * @param error - what the function has thrown, or the error of the store
 * @param context - the raw key, and where it happened
 */
type OnLeadError = (error: unknown, context: {
    /** The key for which was campaigned. */
    key: string;
    /** Whether the function has thrown it, or the store has failed. */
    source: "term" | "campaign";
}) => void;
/** How `lead()` campaigns and leads. */
interface LeadOptions extends LockLabels {
    /** Milliseconds after which others take over from a leader that is dead or cut off. Default 30000. */
    ttlMs?: number | undefined;
    /**
     * Ends it: the campaigning at once; a term as soon as the function, whose signal is aborted with this one, has settled. Until then
     * nobody else leads.
     */
    signal?: AbortSignal | undefined;
    /** How the lock extends itself. A term ends after its `maxMs`. Default: a third of the TTL from one heartbeat to the next. */
    autoExtend?: AutoExtendOptions | undefined;
    /** Called when the function has thrown, or a campaign has failed. Default: it is printed: see {@link OnLeadError}. */
    onError?: OnLeadError | undefined;
    /** Called when the lock is lost during a term. Default: the backend's, else it is printed: see {@link OnLost}. */
    onLost?: OnLost | undefined;
}
/** Which period `once()` is asked for, and how it takes the lock. */
interface OnceOptions extends LockLabels {
    /**
     * Names the period, or the version: a moment, a whole number that is not negative, or a text whose order is that of its
     * characters, such as an ISO date; a text of digits alone is a number. A key has either numbers or texts. At most 100 printable
     * characters of ASCII. A time of day needs a `Z` or an offset.
     */
    due: Date | number | string;
    /**
     * Whether `due` may be a moment, or a text that reads as a date, that begins more than a day after this moment of the store's clock.
     * Default: that is `InvalidArgument`, because once it is done, all that is right would count as done.
     */
    allowAhead?: boolean | undefined;
    /** Milliseconds after which the lock ends by itself, so that another process can do it if this one has died. Default 30000. */
    ttlMs?: number | undefined;
    /** Cancels the attempt, and aborts the signal of the callback's handle. */
    signal?: AbortSignal | undefined;
    /** Extends the lock by itself while the function runs. Default: it ends with its TTL. */
    autoExtend?: AutoExtend | undefined;
    /** Called when the release after a failure of the function fails. Default: the backend's. */
    onReleaseError?: OnReleaseError | undefined;
    /** Called when the lock is lost. Default: the backend's, else it is printed: see {@link OnLost}. */
    onLost?: OnLost | undefined;
    /** Milliseconds after which the release after a failure of the function is no longer waited for. Default: the backend's. */
    disposeTimeoutMs?: number | undefined;
}
/** What came of `once()`. */
type OnceResult<T> = {
    /** It ran here, to its end, and is stored as done. */
    ran: true;
    /** What the function has returned. */
    value: T;
} | {
    /** It did not run here. */
    ran: false;
    /**
     * It was done before, for this period; `"ahead"`: for a later one. Then whoever asks is late, or a wrong clock has stored
     * {@link lastDue}: `syncguard mark` sets it back.
     */
    reason: "done" | "ahead";
    /** When that was stored, on the store's clock. */
    doneAt: Date;
    /** The last period that is stored as done; of a moment its milliseconds. */
    lastDue: string;
} | {
    /** It did not run here. */
    ran: false;
    /** Somebody else holds the lock: they do it, or something else under the same key. */
    reason: "running";
};
/** Options of every backend of this package. */
interface CommonBackendOptions {
    /** Whether `isLocked()` deletes what expired more than two seconds ago. Default false. */
    cleanupInIsLocked?: boolean | undefined;
    /**
     * Called when the release at the end of an `await using` block or of `lock()` fails. Default: the error is printed, but not in
     * production: see {@link OnReleaseError}.
     */
    onReleaseError?: OnReleaseError | undefined;
    /** Called when a lock is lost. Default: it is printed, but not in production: see {@link OnLost}. */
    onLost?: OnLost | undefined;
    /** Milliseconds after which disposal aborts the release and stops waiting for it. Default: no limit of its own. */
    disposeTimeoutMs?: number | undefined;
}
/** How `acquire()` asks. */
type AcquireOptions = LockLabels & {
    /** With it, one slot of the key is taken: {@link OfSlot}. */
    slots?: undefined;
    /** With `"shared"`, others may hold the lock, too, who share it: {@link Claim}. Default `"exclusive"`. */
    mode?: LockMode | undefined;
    /** Milliseconds after which the lock ends by itself. */
    ttlMs: number;
    /** Extends the lock by itself while it is held. Default: it ends with its TTL. */
    autoExtend?: AutoExtend | undefined;
};
/** Options of `releaseAll()`. */
interface ReleaseAllOptions {
    /** Milliseconds after which it ends, whatever the store has answered. Default 5000. */
    timeoutMs?: number | undefined;
}
/** What `releaseAll()` has done. */
interface ReleaseAllResult {
    /**
     * How many locks were released, by this call or by their holders when they heard of it; several that were granted together count
     * as one.
     */
    released: number;
    /** How many were gone already, also one of several. */
    gone: number;
    /**
     * An error for each lock whose release has failed or was not answered in time; such a lock ends with its TTL. Another call
     * tries them again.
     */
    failed: LockError[];
}

/**
 * A backend as every function of this package accepts it: a {@link LockBackend}, or a backend of your own whose `acquire`
 * returns plain results without the methods of a handle.
 */
interface LockBackendLike<C extends BackendCapabilities = BackendCapabilities> {
    /**
     * Tries once to take the lock for `ttlMs` milliseconds.
     *
     * @returns the lock, or `{ ok: false }` if somebody holds it
     * @throws LockError `InvalidArgument` that names the argument; `Aborted` if the signal came first; or the store's error
     */
    acquire: (opts: KeyOp & {
        /** Milliseconds after which the lock ends by itself. */
        ttlMs: number;
    }) => Promise<AcquireResult<C>>;
    /**
     * Frees the lock with that lock id. Safe to repeat.
     *
     * @returns `{ ok: false }` if it was gone before, which is no error
     * @throws LockError `InvalidArgument` that names the argument; `Aborted` if the signal came first; or the store's error,
     *   after which the lock may stay until its TTL is over
     * @example
     * ```ts
     * const { ok } = await backend.release({ lockId: held.lockId });
     * if (!ok) console.warn("the lock had ended before the work did");
     * ```
     */
    release: (opts: LockOp) => Promise<ReleaseResult>;
    /**
     * Makes the lock end `ttlMs` milliseconds from now, whatever was left of it. Never revives one that has ended.
     *
     * @returns `{ ok: false }` if the lock is gone: stop what it protects
     * @throws LockError `InvalidArgument` that names the argument; `Aborted` if the signal came first; or the store's error
     * @example
     * ```ts
     * const extended = await backend.extend({ lockId: held.lockId, ttlMs: 60_000 });
     * if (!extended.ok) throw new Error("the lock was lost: stop");
     * console.log("held until", new Date(extended.expiresAtMs));
     * ```
     */
    extend: (opts: LockOp & {
        /** Milliseconds from now until the lock ends by itself. */
        ttlMs: number;
    }) => Promise<ExtendResult>;
    /**
     * Whether somebody holds the lock. For diagnostics: by the time you act on the answer, it may be out of date.
     *
     * @throws LockError `InvalidArgument` that names the argument; `Aborted` if the signal came first; or the store's error
     * @example
     * ```ts
     * if (await backend.isLocked({ key: "report:nightly" })) console.log("the report is being written");
     * ```
     */
    isLocked: (opts: KeyOp) => Promise<boolean>;
    /**
     * The lock on a key, or `null`. For diagnostics, never a guard before a mutation.
     *
     * @throws LockError `InvalidArgument` that names the argument; `Aborted` if the signal came first; or the store's error
     * @example
     * ```ts
     * const info = await backend.lookup({ key: "report:nightly" });
     * if (info !== null) console.log("held until", new Date(info.expiresAtMs), "under fence", info.fence);
     * ```
     */
    lookup(opts: KeyLookup): Promise<LockInfo<C> | null>;
    /**
     * The lock with that lock id, or `null`. For diagnostics, never a guard before a mutation.
     *
     * @throws LockError `InvalidArgument` that names the argument; `Aborted` if the signal came first; or the store's error
     * @example
     * ```ts
     * const info = await backend.lookup({ lockId: held.lockId });
     * console.log(info === null ? "gone" : `held since ${new Date(info.acquiredAtMs).toISOString()}`);
     * ```
     */
    lookup(opts: OwnershipLookup): Promise<LockInfo<C> | null>;
    /** The lock with that key or that lock id, or `null`; for code that passes on what it was given. */
    lookup(opts: KeyLookup | OwnershipLookup): Promise<LockInfo<C> | null>;
    /** What this backend can do. */
    readonly capabilities: Readonly<C>;
}
/** The contract between a store of locks and this package. Use a backend of this package, or write your own. */
interface LockBackend<C extends BackendCapabilities = BackendCapabilities> extends LockBackendLike<C> {
    /**
     * Tries once to take the lock for `ttlMs` milliseconds. The result can be used with `await using`.
     *
     * @returns the lock with the methods of a handle, or `{ ok: false }` if somebody holds it
     * @throws LockError `InvalidArgument` that names the argument; `Aborted` if the signal came first; or the store's error
     */
    acquire: (opts: KeyOp & {
        /** Milliseconds after which the lock ends by itself. */
        ttlMs: number;
    }) => Promise<DecoratedAcquireResult<C>>;
}
/**
 * `lock()` bound to a backend: waits for the lock, runs `fn` while it is held, and frees it whatever `fn` did.
 *
 * @throws LockError `AcquisitionTimeout` if others held it for too long; `Aborted` if a signal ended the waiting;
 *   `InvalidArgument` that names the option; `LockLost` with `throwIfLost`; or the backend's error
 */
type BoundLock<C extends BackendCapabilities = FencingCapabilities> = Bound<C> & Bound;
/** Beside that of `C`, it is there for any store: what backends of several stores may be can be called by what they have in common. */
type Bound<C extends BackendCapabilities = FencingCapabilities> = {
    /** Under the lock on a key. */
    <T>(fn: (handle: LockHandle<C>) => Promise<T> | T, config: LockConfig | LockConfigOf<ModeClaim>): Promise<T>;
    /** Under one slot of a key. */
    <T>(fn: (handle: SlotHandle<C>) => Promise<T> | T, config: SlotConfig): Promise<T>;
    /** Under several locks, all or nothing. */
    <T>(fn: (handle: LocksHandle<C>) => Promise<T> | T, config: LockConfigOf<Claims | Required<Omit<Claim, "mode">>>): Promise<T>;
};
/** What `createLock()` gives: {@link BoundLock} with a backend of its own, which is closed with it. */
type ClosableLock<C extends BackendCapabilities = FencingCapabilities> = BoundLock<C> & {
    /** As {@link SyncGuardBackend.close} of its backend. */
    readonly close: () => Promise<void>;
    /**
     * As `close()`, at the end of a block.
     *
     * @example
     * ```ts
     * import { createLock } from "syncguard/sqlite";
     *
     * await using lock = createLock("./locks.db");
     * await lock(() => console.log("writing"), { key: "report:nightly" });
     * ```
     */
    readonly [Symbol.asyncDispose]: () => Promise<void>;
};
/** `acquire()` of a backend of this package. */
type AcquireMethod<C extends BackendCapabilities = FencingCapabilities> = {
    /** The lock on a key. */
    (opts: KeyOp & AcquireOptions): Promise<HeldLock<C> | Extract<DecoratedAcquireResult<C>, {
        ok: false;
    }>>;
    /** One slot of a key. */
    (opts: KeyOp & OfSlot<AcquireOptions>): Promise<HeldSlot<C> | Extract<DecoratedAcquireResult<C>, {
        ok: false;
    }>>;
    /** Several locks, all or nothing. Without them, `key` names what stood in the way. */
    (opts: AcquireOptions & {
        /** What to take. */
        claims: Claims;
        /** Cancels the operation, which is then rejected with `Aborted`. */
        signal?: AbortSignal | undefined;
    }): Promise<HeldLocks<C> | (Extract<DecoratedAcquireResult<C>, {
        ok: false;
    }> & {
        /** What stood in the way. */
        readonly key?: string;
    })>;
};
/** `lock()` of a backend of this package. */
type LockMethod<C extends BackendCapabilities = FencingCapabilities> = {
    /** The lock on a key. */
    (key: string | ModeClaim, options?: BackendLockOptions): Promise<HeldLock<C>>;
    /** One slot of a key. */
    (key: string, options: OfSlot<BackendLockOptions>): Promise<HeldSlot<C>>;
    /** The same, as a claim. */
    (claim: SlotClaim, options?: BackendLockOptions): Promise<HeldSlot<C>>;
    /** Several locks, all or nothing. */
    (claims: Claims | Required<Omit<Claim, "mode">>, options?: BackendLockOptions): Promise<HeldLocks<C>>;
    /** The lock on a key once more: the compiler's errors name the last signature. */
    (key: string | ModeClaim, options?: BackendLockOptions): Promise<HeldLock<C>>;
};
/** `tryLock()` of a backend of this package. */
type TryLockMethod<C extends BackendCapabilities = FencingCapabilities> = TryLock<C> & TryLock;
/** As `Bound`, there for any store, too. */
type TryLock<C extends BackendCapabilities = FencingCapabilities> = {
    /** Under the lock on a key. */
    <T>(key: string | ModeClaim, fn: (handle: LockHandle<C>) => Promise<T> | T, options?: TryLockOptions): Promise<TryLockResult<T>>;
    /** Under one slot of a key. */
    <T>(key: string, fn: (handle: SlotHandle<C>) => Promise<T> | T, options: OfSlot<TryLockOptions>): Promise<TryLockResult<T>>;
    /** The same, as a claim. */
    <T>(claim: SlotClaim, fn: (handle: SlotHandle<C>) => Promise<T> | T, options?: TryLockOptions): Promise<TryLockResult<T>>;
    /** Under several locks, all or nothing. */
    <T>(claims: Claims | Required<Omit<Claim, "mode">>, fn: (handle: LocksHandle<C>) => Promise<T> | T, options?: TryLockOptions): Promise<TryLockResult<T>>;
    /** Under the lock on a key once more: the compiler's errors name the last signature, unless it is the same as another. */
    <T>(key: string, fn: (handle: LockHandle<C>) => Promise<T> | T, options?: TryLockOptions): Promise<TryLockResult<T>>;
};
/** `once()` of a backend of this package. */
type OnceMethod<C extends BackendCapabilities = FencingCapabilities> = <T>(key: string, options: OnceOptions, fn: (handle: OnceHandle<C>) => Promise<T> | T) => Promise<OnceResult<T>>;
/** A backend of this package: a {@link LockBackend} with more methods. All of them have fencing tokens. */
interface SyncGuardBackend<C extends BackendCapabilities = FencingCapabilities> extends LockBackend<C> {
    /** Which way operations take to the server, and why. Absent on backends that need no server. */
    readonly transport?: BackendTransport;
    /**
     * Tries once to take the lock for `ttlMs` milliseconds. The result can be used with `await using`.
     *
     * @returns the lock with the methods of a handle, or `{ ok: false }` if somebody holds it
     * @throws LockError `InvalidArgument` that names the argument; `Aborted` if the signal came first or `releaseAll()` was
     *   called; or the store's error
     * @example
     * ```ts
     * await using attempt = await backend.acquire({ key: "report:nightly", ttlMs: 30_000 });
     * if (attempt.ok) console.log("working under fence", attempt.fence);
     * else console.log("somebody else is on it");
     * ```
     */
    acquire: AcquireMethod<C>;
    /**
     * Frees the lock with that lock id, or several in one step. Safe to repeat.
     *
     * @returns `{ ok: false }` if it was gone before, or one of several was, which is no error: the others are free
     * @throws LockError `InvalidArgument` that names the argument; `Aborted` if the signal came first; or the store's error,
     *   after which the lock may stay until its TTL is over
     * @example
     * ```ts
     * const { ok } = await backend.release({ lockId: held.lockId });
     * if (!ok) console.warn("the lock had ended before the work did");
     * ```
     */
    release: (opts: LockOp | LocksOp) => Promise<ReleaseResult>;
    /**
     * Makes the lock end `ttlMs` milliseconds from now, whatever was left of it; of several, all or none. Never revives one that
     * has ended.
     *
     * @returns `{ ok: false }` if the lock is gone, or one of several is: stop what it protects
     * @throws LockError `InvalidArgument` that names the argument; `Aborted` if the signal came first; or the store's error
     * @example
     * ```ts
     * const extended = await backend.extend({ lockId: held.lockId, ttlMs: 60_000 });
     * if (!extended.ok) throw new Error("the lock was lost: stop");
     * console.log("held until", new Date(extended.expiresAtMs));
     * ```
     */
    extend: (opts: (LockOp | LocksOp) & {
        /** Milliseconds from now until the lock ends by itself. */
        ttlMs: number;
    }) => Promise<ExtendResult>;
    /**
     * Waits for the lock and resolves once it is held.
     *
     * @throws LockError `AcquisitionTimeout` if others held it for too long; `Aborted` if a signal or `releaseAll()` ended the
     *   waiting; `InvalidArgument` that names the option; or the store's error
     * @example
     * ```ts
     * await using held = await backend.lock("report:nightly", {
     *   ttlMs: 30_000,
     *   acquisition: { timeoutMs: 10_000 },
     *   autoExtend: true,
     * });
     * held.assertHeld(); // directly before each effect
     * ```
     * @example
     * ```ts
     * await using held = await backend.lock(["account:1", "account:2"]);
     * console.log("both accounts, under fences", held.fences.get("account:1"), held.fences.get("account:2"));
     * ```
     * @example
     * ```ts
     * await using reading = await backend.lock("catalogue", { mode: "shared" });
     * console.log("beside other readers, and no writer, under fence", reading.fence);
     * ```
     * @example
     * ```ts
     * await using permit = await backend.lock("api:partner", { slots: 5 });
     * console.log("one of five: number", permit.slot);
     * ```
     */
    lock: LockMethod<C>;
    /**
     * Runs `fn` under the lock if it is free at this moment, and frees it whatever `fn` did. If somebody holds it, `fn` does not run.
     * Asks once and does not wait.
     *
     * @returns `{ ran: true, value }` with what `fn` returned, or `{ ran: false, reason: "locked" }` with `retryAfterMs` and `owner`, as far
     *   as the store knows them
     * @throws LockError `InvalidArgument` that names the argument; `Aborted` if the signal came first; `LockLost` with `throwIfLost`; or
     *   the store's error. What `fn` throws is thrown. A failed release goes to `onReleaseError`
     * @example
     * ```ts
     * const run = await backend.tryLock("cache:refresh", async ({ fence }) => {
     *   console.log("refreshing under fence", fence);
     * });
     * if (!run.ran) console.log("somebody is on it, for at most", run.retryAfterMs, "ms");
     * ```
     */
    tryLock: TryLockMethod<C>;
    /**
     * Runs `fn` in one process at a time, of all that call this with the same key. It leads until it settles or the lock, which extends
     * itself, is lost; then this process campaigns again, but never before `fn` has settled. What `fn` returns is ignored.
     *
     * @returns a promise that resolves when it is over, by the signal, `releaseAll()` or `close()`, and `fn` has settled. Until then the
     *   process does not end by itself.
     * @throws LockError `InvalidArgument` that names the argument. What `fn` throws, and what the store fails with, goes to `onError`
     * @example
     * ```ts
     * const stopping = new AbortController();
     * process.once("SIGTERM", () => stopping.abort());
     * await backend.lead(
     *   "scheduler",
     *   async ({ term, signal }) => {
     *     console.log("leads, term", term);
     *     while (!signal.aborted) await new Promise((resolve) => setTimeout(resolve, 1_000)); // the work
     *   },
     *   { ttlMs: 10_000, signal: stopping.signal },
     * );
     * ```
     */
    lead: (key: string, fn: (leadership: Leadership<C>) => unknown, options?: LeadOptions) => Promise<void>;
    /**
     * Frees the lock, whoever holds it. For administrators: a holder only finds out when it extends the lock.
     *
     * @returns `{ ok: false }` if nobody held it
     * @throws LockError `InvalidArgument` that names the argument; `Aborted` if the signal came first; or the store's error
     * @example
     * ```ts
     * const { ok } = await backend.forceRelease("report:nightly");
     * console.log(ok ? "freed" : "nobody held it");
     * ```
     */
    forceRelease: (key: string, options?: {
        /** Cancels the operation, which is then rejected with `Aborted`; the store may have carried it out. */
        signal?: AbortSignal | undefined;
    }) => Promise<ReleaseResult>;
    /**
     * Runs `fn` under the lock on `key` if nothing was done yet for the period `due`, or for a later one: by whoever comes first, of
     * all processes. Once `fn` has ended well, the period is stored as done in the step that releases the lock. Where `fn` throws, or
     * its process dies, it stays open, and whoever comes next does it. Asks once and does not wait.
     *
     * At least once: if a process dies after its last effect, or loses its lock there, another one does it again. Exactly once, where
     * `fn` writes in a transaction of the store, and calls `done(tx)` of its handle in it.
     *
     * @returns `{ ran: true, value }`, or `{ ran: false, reason }`: it was `"done"` before, or somebody else is `"running"`
     * @throws LockError `LockLost` if the lock was lost before it was done: then nothing is stored; `InvalidArgument` that names the
     *   argument; or the store's error, after which it may be stored or not. What `fn` throws is thrown.
     * @example
     * ```ts
     * const due = new Date().toISOString().slice(0, 10); // once a day
     * const run = await backend.once("nightly-report", { due, ttlMs: 60_000, autoExtend: true }, async ({ fence }) => {
     *   console.log("writing the report under fence", fence);
     * });
     * if (!run.ran) console.log(run.reason === "done" ? `done at ${run.doneAt.toISOString()}` : "somebody else is on it");
     * ```
     */
    once: OnceMethod<C>;
    /**
     * Gives back the locks that this process holds through this backend, for a process that is told to end. Never rejects
     * because of a release: see {@link ReleaseAllResult}.
     *
     * From the call on the backend grants no more locks: who asks or waits for one gets `Aborted`. The `signal` of each lock is
     * aborted with `LockLost` before it is released, because from then on another process may have it.
     *
     * @throws LockError `InvalidArgument` for a `timeoutMs` that is no positive number
     * @example
     * ```ts
     * process.once("SIGTERM", async () => {
     *   const { failed } = await backend.releaseAll({ timeoutMs: 3_000 });
     *   for (const { code, message } of failed) console.error(code, message);
     *   await backend.close();
     * });
     * ```
     */
    releaseAll: (options?: ReleaseAllOptions) => Promise<ReleaseAllResult>;
    /**
     * Closes connections and files, after the operations that run; safe to repeat. Locks that are held stay until their TTLs
     * are over: see {@link SyncGuardBackend.releaseAll}. Without it, the process can still end.
     *
     * @example
     * ```ts
     * import { createSqliteBackend } from "syncguard/sqlite";
     *
     * const backend = createSqliteBackend("./locks.db");
     * try {
     *   console.log(await backend.isLocked({ key: "report:nightly" }));
     * } finally {
     *   await backend.close();
     * }
     * ```
     */
    close: () => Promise<void>;
    /**
     * As `close()`, at the end of a block.
     *
     * @example
     * ```ts
     * import { createSqliteBackend } from "syncguard/sqlite";
     *
     * await using backend = createSqliteBackend("./locks.db");
     * console.log(await backend.isLocked({ key: "report:nightly" }));
     * ```
     */
    [Symbol.asyncDispose](): Promise<void>;
}

/** An event of telemetry, which reports one operation, or the loss of a lock. */
type LockEvent = {
    /** Which operation; `"lost"` when a lock was lost, `"mark"` when somebody has changed what is stored as done. */
    type: "acquire" | "release" | "extend" | "isLocked" | "lookup" | "forceRelease" | "mark" | "lost";
    /** Whether it gave what was asked for: `"fail"` for contention, an absent lock, `false`, `null` and errors. */
    result: "ok" | "fail";
    /** `hashKey(key)`, when the operation has a key. */
    keyHash?: HashId;
    /** How many keys the operation is about, when it has several; how many lock ids, where only those are known. */
    claims?: number;
    /** `hashKey(key)` of each of them. */
    keyHashes?: HashId[];
    /** `"shared"` for an acquisition, or a wait, of one lock in shared mode. */
    mode?: "shared";
    /** `hashKey(lockId)`, when the operation has a lock id. */
    lockIdHash?: HashId;
    /** Why an acquisition, release or extension did nothing, when known; `"done"` and `"ahead"` only for `once()`. */
    reason?: "locked" | "done" | "ahead" | "expired" | "not-found";
    /** How long `lock()` has waited, in milliseconds: in all, or on a backend of your own until the end of this attempt. */
    waitMs?: number;
    /** How many attempts it has made until then; 0 if its time was over, or it was cancelled, before its turn came. */
    attempts?: number;
    /** How many times it was told that the lock may be free. */
    wakeups?: number;
    /** Milliseconds for which the lock was held. Only for `"lost"` and for what releases a lock by its handle. */
    heldMs?: number;
    /** How many heartbeats have extended the lock. Only beside `heldMs`, for a lock that extends itself. */
    extensions?: number;
    /** Whether the lock was lost before it was released, as its handle knew or its release has found. Only beside `heldMs`. */
    lost?: boolean;
    /** Who did it, by the name that `authorize()` of a dashboard gave; only for changes by a dashboard. */
    by?: string;
    /** The key; only if `includeRaw` allows. */
    key?: string;
    /** Several keys; only if `includeRaw` allows. */
    keys?: readonly string[];
    /** The lock id; only if `includeRaw` allows. */
    lockId?: string;
};
/**
 * A message on one of the channels `syncguard:acquire`, `…:release`, `…:extend`, `…:isLocked`, `…:lookup`, `…:forceRelease`,
 * `…:mark`, `…:lost` and `…:wait` of `node:diagnostics_channel`. Only backends of this package publish. Members that it shares with
 * {@link LockEvent} mean the same.
 */
interface DiagnosticsMessage extends Pick<LockEvent, "result" | "keyHash" | "claims" | "keyHashes" | "mode" | "lockIdHash" | "reason" | "waitMs" | "attempts" | "wakeups" | "heldMs" | "extensions" | "lost" | "by"> {
    /** What was done; `"wait"` is the end of the waiting of `lock()`, whatever came of it. */
    type: LockEvent["type"] | "wait";
    /** The store, as in the backend's `capabilities`. */
    backend: string;
    /** Which way the backend takes to its server; absent if it needs none. */
    transport?: BackendTransport["way"];
    /** What the operation or the wait has failed with. Contention is no error of an attempt, but one of a wait. */
    error?: LockErrorCode;
    /** Milliseconds that an operation took. */
    durationMs?: number;
}
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
 * @example
 * ```ts
 * import { lock, setDefaultBackend } from "syncguard";
 * import { createRedisBackend } from "syncguard/redis";
 *
 * setDefaultBackend(createRedisBackend("redis://localhost:6379"));
 * await lock(() => console.log("writing"), { key: "report:nightly" });
 * ```
 */
declare function setDefaultBackend(backend: LockBackendLike<FencingCapabilities> | undefined): void;

/** The function of `lead()`. */
type Work<C extends BackendCapabilities> = (leadership: Leadership<C>) => unknown;
/**
 * `backend.lead()` for any backend, also for one of your own.
 *
 * @throws LockError `InvalidArgument` that names the argument
 * @example
 * ```ts
 * import { lead, type LockBackendLike } from "syncguard";
 *
 * async function schedule(mine: LockBackendLike, stopping: AbortSignal): Promise<void> {
 *   await lead(mine, "scheduler", ({ signal }) => runUntil(signal), { signal: stopping });
 * }
 *
 * async function runUntil(signal: AbortSignal): Promise<void> {
 *   while (!signal.aborted) await new Promise((resolve) => setTimeout(resolve, 1_000)); // the work
 * }
 * ```
 */
declare function lead<C extends BackendCapabilities = BackendCapabilities>(backend: LockBackendLike<C>, key: string, fn: Work<C>, options?: LeadOptions): Promise<void>;
/**
 * `backend.lead()` on the default backend, which is that of `lock()`.
 *
 * @throws LockError `InvalidArgument` that names the argument
 * @example
 * ```ts
 * import { lead } from "syncguard";
 *
 * const stopping = new AbortController();
 * process.once("SIGTERM", () => stopping.abort());
 * await lead("scheduler", ({ term }) => console.log("leads, term", term), { signal: stopping.signal });
 * ```
 */
declare function lead(key: string, fn: Work<FencingCapabilities>, options?: LeadOptions): Promise<void>;

/**
 * Waits for the lock, runs `fn` while it is held, and frees it whatever `fn` did.
 *
 * @param backend - where the lock is kept
 * @param fn - runs once the lock is held; what it returns or throws is what `lock` gives
 * @param config - which lock, and how to wait
 * @throws LockError `AcquisitionTimeout` if others held it for too long; `Aborted` if a signal ended the waiting; `LockLost` with
 *   `config.throwIfLost`; or the backend's error. A failed release is reported to `config.onReleaseError` and never replaces the result of `fn`.
 * @example
 * ```ts
 * import { lock } from "syncguard";
 * import { createRedisBackend } from "syncguard/redis";
 *
 * const backend = createRedisBackend("redis://localhost:6379");
 * const total = await lock(
 *   backend,
 *   async ({ fence, assertHeld }) => {
 *     assertHeld(); // directly before each effect: the lock may be lost
 *     console.log("working under fence", fence);
 *     return 42;
 *   },
 *   { key: "report:nightly", ttlMs: 30_000, acquisition: { timeoutMs: 10_000 } },
 * );
 * ```
 */
declare function lock<T, C extends BackendCapabilities = BackendCapabilities>(backend: LockBackendLike<C>, fn: (handle: LockHandle<C>) => Promise<T> | T, config: LockConfig): Promise<T>;
/**
 * Under one slot of a key, on a backend of this package.
 *
 * @example
 * ```ts
 * import { lock } from "syncguard";
 *
 * await lock(backend, ({ slot, fence }) => console.log("one of five: number", slot, "under fence", fence), {
 *   key: "api:partner",
 *   slots: 5,
 * });
 * ```
 */
declare function lock<T, C extends BackendCapabilities = BackendCapabilities>(backend: LockBackendLike<C>, fn: (handle: SlotHandle<C>) => Promise<T> | T, config: SlotConfig): Promise<T>;
/**
 * Under several locks, all or nothing, on a backend of this package.
 *
 * @example
 * ```ts
 * import { lock } from "syncguard";
 *
 * await lock(backend, ({ fences }) => console.log("both accounts, under fences", [...fences.values()]), {
 *   key: ["account:1", "account:2"],
 *   ttlMs: 30_000,
 * });
 * ```
 */
declare function lock<T, C extends BackendCapabilities = BackendCapabilities>(backend: LockBackendLike<C>, fn: (handle: LocksHandle<C>) => Promise<T> | T, config: LockConfigOf<Claims | Required<Claim>>): Promise<T>;
/**
 * Waits for the lock on the default backend, runs `fn` while it is held, and frees it whatever `fn` did. The default backend is
 * the one given to `setDefaultBackend()`, else the one that `SYNCGUARD_URL` names, else an SQLite database in the user's
 * state folder.
 *
 * Only processes of the same user on the same machine use that database, so its locks exclude neither other users nor
 * other machines. For those, use a backend on a server.
 *
 * @param fn - runs once the lock is held; what it returns or throws is what `lock` gives
 * @param config - which lock, and how to wait
 * @throws LockError `AcquisitionTimeout` if others held it for too long; `Aborted` if a signal ended the waiting;
 *   `InvalidArgument` also for a `SYNCGUARD_URL` that names no store; or the backend's error
 * @example
 * ```ts
 * import { lock } from "syncguard";
 *
 * await lock(() => console.log("writing"), { key: "report:nightly" });
 * ```
 */
declare function lock<T>(fn: (handle: LockHandle) => Promise<T> | T, config: LockConfig): Promise<T>;
/**
 * Under one slot of a key, on the default backend.
 *
 * @example
 * ```ts
 * import { lock } from "syncguard";
 *
 * await lock(({ slot }) => console.log("one of five: number", slot), {
 *   key: "api:partner",
 *   slots: 5,
 * });
 * ```
 */
declare function lock<T>(fn: (handle: SlotHandle) => Promise<T> | T, config: SlotConfig): Promise<T>;
/**
 * Under several locks, all or nothing, on the default backend.
 *
 * @example
 * ```ts
 * import { lock } from "syncguard";
 *
 * await lock(({ fences }) => console.log("both accounts, under fences", [...fences.values()]), {
 *   key: ["account:1", "account:2"],
 * });
 * ```
 */
declare function lock<T>(fn: (handle: LocksHandle) => Promise<T> | T, config: LockConfigOf<Claims | Required<Claim>>): Promise<T>;

/** The time by which locks are waited for and held. */
/** A clock and its timers. */
interface Clock {
    /** Milliseconds since the Unix epoch. */
    now(): number;
    /** Milliseconds since some moment. Nobody can set this back. */
    elapsed(): number;
    /** Calls `run` once, after `ms` milliseconds. */
    setTimeout(run: () => void, ms: number): Timer;
    /** Forgets a timer that has not been due yet. */
    clearTimeout(timer: Timer | undefined): void;
}
/** What `setTimeout` of a clock returns. */
type Timer = {
    /** Lets the process end before the timer is due. */
    unref?: () => unknown;
};

/** Runs a function once for each period. */

/** The function of `once()`. */
type OnceWork<T, C extends BackendCapabilities> = (handle: OnceHandle<C>) => Promise<T> | T;

/**
 * As `backend.once()`: runs `fn` once for each period, by whoever comes first.
 *
 * @param backend - where the lock is kept; one of this package, or a wrapper of one
 * @param key - names what is to be done
 * @param options - for which period, and how to take the lock
 * @param fn - does it; what it returns is the `value` of the result
 * @throws LockError `LockLost` if the lock was lost before it was done; `InvalidArgument` also for a backend that cannot store what is
 *   done; or the store's error. What `fn` throws is thrown.
 * @example
 * ```ts
 * import { once } from "syncguard";
 * import { createRedisBackend } from "syncguard/redis";
 *
 * const backend = createRedisBackend("redis://localhost:6379");
 * await once(backend, "migration", { due: 42 }, ({ fence }) => console.log("to version 42 under fence", fence));
 * ```
 */
declare function once<T, C extends BackendCapabilities = BackendCapabilities>(backend: LockBackendLike<C>, key: string, options: OnceOptions, fn: OnceWork<T, C>): Promise<OnceResult<T>>;
/**
 * On the default backend, as that of `lock()`.
 *
 * @example
 * ```ts
 * import { once } from "syncguard";
 *
 * await once("nightly-report", { due: "2026-11-24" }, () => console.log("writing the report"));
 * ```
 */
declare function once<T>(key: string, options: OnceOptions, fn: OnceWork<T, FencingCapabilities>): Promise<OnceResult<T>>;

/** The public types of the Firestore backend. */

/** Firestore gives fencing tokens; the clock of the client decides. */
interface FirestoreCapabilities extends BackendCapabilities {
    /** The store, for those who handle backends of several. */
    backend: "firestore";
    /** Each acquisition comes with a fencing token. */
    supportsFencing: true;
    /** The clock of the process that asks decides when a lock ends, so clocks must be synchronised. */
    timeAuthority: "client";
}
/** Your client: an instance of `Firestore` of `@google-cloud/firestore`, or any object with its methods. */
interface FirestoreClient {
    /** Gives a reference to a collection. */
    collection: (...args: never[]) => unknown;
    /** Runs a function in a transaction. */
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
    /** The server: `host` or `host:port`. Default: Google's public one. */
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
     * Whether locks are granted and extended however far this machine's clock is from Firestore's. Default false: both fail
     * with `ServiceUnavailable` if they differ by more than 500 ms, because two holders could be the result.
     */
    ignoreClockSkew?: boolean | undefined;
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
    /** The collection of locks. */
    collection: string;
    /** The collection of fence counters. */
    fenceCollection: string;
    /** Whether `isLocked()` deletes what expired more than two seconds ago. */
    cleanupInIsLocked: boolean;
}
/** A lock as Firestore keeps it. */
interface LockDocument {
    /** The lock id: whoever knows it can release the lock. */
    lockId: string;
    /** When the lock ends, in milliseconds since the Unix epoch. */
    expiresAtMs: number;
    /** When the lock was granted, in milliseconds since the Unix epoch. */
    acquiredAtMs: number;
    /** The user's key in Unicode NFC. */
    key: string;
    /** The fencing token: 15 decimal digits. */
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
 * @example
 * ```ts
 * import { Firestore } from "@google-cloud/firestore";
 * import { createFirestoreBackend } from "syncguard/firestore";
 *
 * const byClient = createFirestoreBackend(new Firestore());
 * const byOptions = createFirestoreBackend({ projectId: "my-project" }, { collection: "app-locks" });
 * await using held = await byClient.lock("report:nightly", { ttlMs: 30_000 });
 * ```
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
    [Option in Exclude<keyof AcquisitionOptions, "signal" | "wait" | "maxRetryDelayMs">]-?: NonNullable<AcquisitionOptions[Option]>;
} & Pick<AcquisitionOptions, "signal">;
/** The options that override the defaults of a backend. */
interface BackendConfig {
    /** Milliseconds after which a lock ends by itself. Default 30000. */
    ttlMs?: number | undefined;
}
/**
 * The options, with the defaults of `lock()` filled in and the signal unchanged.
 *
 * @example
 * ```ts
 * import { mergeAcquisitionConfig } from "syncguard/common";
 *
 * const policy = mergeAcquisitionConfig({ timeoutMs: 60_000 });
 * console.log(policy.timeoutMs, policy.maxRetries); // 60000 10
 * ```
 */
declare function mergeAcquisitionConfig(options?: AcquisitionOptions): AcquisitionPolicy;
/**
 * The options, with the defaults of backends filled in.
 *
 * @example
 * ```ts
 * import { mergeBackendConfig } from "syncguard/common";
 *
 * console.log(mergeBackendConfig().ttlMs); // 30000
 * ```
 */
declare function mergeBackendConfig(config?: BackendConfig): {
    /** Milliseconds after which a lock ends by itself. */
    ttlMs: number;
};

/** The raw identifiers, which lookups hide. */
type RawIdentifiers = StoredLabels & {
    /** The key. */
    key: string;
    /** The lock id: whoever knows it can release the lock. */
    lockId: string;
    /** The time on the store's clock at the lookup, in milliseconds since the Unix epoch. */
    readAtMs?: number;
    /** Whether the key is shared: it is the lock of one who shares it, or found by the key, that of all who do. */
    isShared?: boolean;
};
/** A lock as a store keeps it. */
type RawLockData = {
    /** The key. */
    key: string;
    /** The lock id: whoever knows it can release the lock. */
    lockId: string;
    /** When the lock ends, in milliseconds since the Unix epoch. */
    expiresAtMs: number;
    /** When the lock was granted, in milliseconds since the Unix epoch. */
    acquiredAtMs: number;
    /** The fencing token, if the store has them. */
    fence?: Fence | undefined;
};
/** Options of the lookups. */
type LookupOptions = {
    /** Cancels the lookup, which is then rejected with `Aborted`. */
    signal?: AbortSignal | undefined;
};
/**
 * The lock on `key`, or `null`. Shows hashes, not identifiers.
 *
 * @throws LockError `InvalidArgument` for what is no key; `Aborted` if the signal came first; or the store's error
 * @example
 * ```ts
 * import { getByKey } from "syncguard";
 *
 * const info = await getByKey(backend, "report:nightly");
 * if (info !== null) console.log("held until", new Date(info.expiresAtMs), "under fence", info.fence);
 * ```
 */
declare function getByKey<C extends BackendCapabilities>(backend: LockBackendLike<C>, key: string, opts?: LookupOptions): Promise<LockInfo<C> | null>;
/**
 * The lock with that lock id, or `null`. Shows hashes, not identifiers.
 *
 * @throws LockError `InvalidArgument` for what is no lock id; `Aborted` if the signal came first; or the store's error
 * @example
 * ```ts
 * import { getById } from "syncguard";
 *
 * const info = await getById(backend, held.lockId);
 * console.log(info === null ? "gone" : `held until ${new Date(info.expiresAtMs).toISOString()}`);
 * ```
 */
declare function getById<C extends BackendCapabilities>(backend: LockBackendLike<C>, lockId: string, opts?: LookupOptions): Promise<LockInfo<C> | null>;
/**
 * The lock on `key` with its raw identifiers, or `null`. Sensitive: for debugging only.
 *
 * @throws LockError `InvalidArgument` for what is no key; `Aborted` if the signal came first; or the store's error
 * @example
 * ```ts
 * import { getByKeyRaw } from "syncguard";
 *
 * const info = await getByKeyRaw(backend, "report:nightly");
 * console.log("held by", info?.owner ?? "nobody");
 * ```
 */
declare function getByKeyRaw<C extends BackendCapabilities>(backend: LockBackendLike<C>, key: string, opts?: LookupOptions): Promise<LockInfoDebug<C> | null>;
/**
 * The lock with that lock id and its raw identifiers, or `null`. Sensitive: for debugging only.
 *
 * @throws LockError `InvalidArgument` for what is no lock id; `Aborted` if the signal came first; or the store's error
 * @example
 * ```ts
 * import { getByIdRaw } from "syncguard";
 *
 * const info = await getByIdRaw(backend, held.lockId);
 * console.log(info?.key);
 * ```
 */
declare function getByIdRaw<C extends BackendCapabilities>(backend: LockBackendLike<C>, lockId: string, opts?: LookupOptions): Promise<LockInfoDebug<C> | null>;
/**
 * Whether the lock with that lock id is held now.
 *
 * For diagnostics only: by the time you act on the answer, it may be out of date. `release` and `extend` check the
 * ownership themselves.
 *
 * @throws LockError `InvalidArgument` for what is no lock id, or the store's error
 * @example
 * ```ts
 * import { owns } from "syncguard";
 *
 * if (!(await owns(backend, held.lockId))) console.warn("the lock has ended");
 * ```
 */
declare function owns<C extends BackendCapabilities>(backend: LockBackendLike<C>, lockId: string): Promise<boolean>;
/**
 * The part of a lock that a lookup may show: hashes in place of identifiers, and the fence if the backend has fences.
 *
 * @param rawData - the lock as the store keeps it
 * @param capabilities - those of the backend, which say whether there is a fence
 * @example
 * ```ts
 * import { generateLockId, sanitizeLockInfo } from "syncguard";
 *
 * const row = { key: "report:nightly", lockId: generateLockId(), acquiredAtMs: 0, expiresAtMs: 30_000 };
 * const info = sanitizeLockInfo(row, { supportsFencing: false, timeAuthority: "server" });
 * console.log(info.keyHash, info.expiresAtMs);
 * ```
 */
declare function sanitizeLockInfo<C extends BackendCapabilities>(rawData: RawLockData, capabilities: Readonly<C>): LockInfo<C>;
/**
 * Attaches the raw identifiers to `info`, visible only to `getByKeyRaw` and `getByIdRaw`.
 *
 * @returns `info` itself
 * @example
 * ```ts
 * import { attachRawData, type RawLockData, sanitizeLockInfo } from "syncguard/common";
 *
 * // What the lookup of a backend of your own gives for a row of its store:
 * function shown(row: RawLockData) {
 *   const info = sanitizeLockInfo(row, { supportsFencing: true, timeAuthority: "server" });
 *   return attachRawData(info, { key: row.key, lockId: row.lockId });
 * }
 * ```
 */
declare function attachRawData<Info extends object>(info: Info, raw: RawIdentifiers): Info;

/** Makes handles: the methods of a granted lock, and its release at the end of a block. */

/** The part of a backend that handles need. */
type Mutations<C extends BackendCapabilities> = Pick<LockBackend, "release" | "extend"> & {
    /** What the backend can do. */
    readonly capabilities?: Readonly<C>;
};
/**
 * The handle of a granted lock: the members of `result`, and the methods `release`, `extend` and disposal.
 *
 * @param backend - where the lock is held; only its `release` and `extend` are used
 * @param result - what its `acquire` returned
 * @param key - the lock's key, for `onReleaseError`
 * @param onReleaseError - called when a release fails during disposal
 * @param disposeTimeoutMs - milliseconds after which disposal aborts the release and stops waiting for it;
 *   `onReleaseError` is called when the release is rejected, then or later, and not at all if it never ends
 * @throws LockError `InvalidArgument` for options that disposal cannot use
 * @example
 * ```ts
 * import { createDisposableHandle, type LockBackendLike } from "syncguard/common";
 *
 * async function work(mine: LockBackendLike): Promise<void> {
 *   const result = await mine.acquire({ key: "report:nightly", ttlMs: 30_000 });
 *   if (!result.ok) return;
 *   await using handle = createDisposableHandle(mine, result, "report:nightly");
 *   console.log("held until", new Date(handle.expiresAtMs));
 * }
 * ```
 */
declare function createDisposableHandle<C extends BackendCapabilities>(backend: Mutations<C>, result: AcquireOk<C>, key: string, onReleaseError?: OnReleaseError, disposeTimeoutMs?: number): AsyncLock<C>;
/**
 * The result of an acquisition with the methods of a handle. Without a lock, the methods do nothing.
 *
 * @throws LockError `InvalidArgument` for options that disposal cannot use
 * @example
 * ```ts
 * import { createDisposableHandle, type LockBackendLike } from "syncguard/common";
 *
 * async function attempt(mine: LockBackendLike): Promise<boolean> {
 *   const result = await mine.acquire({ key: "report:nightly", ttlMs: 30_000 });
 *   await using handle = createDisposableHandle(mine, result, "report:nightly");
 *   return handle.ok;
 * }
 * ```
 */
declare function createDisposableHandle<C extends BackendCapabilities>(backend: Mutations<C>, result: AcquireResult<C>, key: string, onReleaseError?: OnReleaseError, disposeTimeoutMs?: number): DecoratedAcquireResult<C>;
/**
 * The result of an acquisition with the methods of {@link createDisposableHandle}, for `await using`.
 *
 * Backends return this from `acquire`.
 *
 * @param backend - where the lock is held; only its `release` and `extend` are used
 * @param result - what the store has answered
 * @param key - the lock's key, for `onReleaseError`
 * @param onReleaseError - called when a release fails during disposal
 * @param disposeTimeoutMs - milliseconds after which disposal aborts the release and stops waiting for it
 * @throws LockError `InvalidArgument` for options that disposal cannot use
 * @example
 * ```ts
 * import { decorateAcquireResult, type LockBackend, type LockBackendLike } from "syncguard";
 *
 * function disposable(mine: LockBackendLike): LockBackend {
 *   return {
 *     ...mine,
 *     acquire: async (opts) => decorateAcquireResult(mine, await mine.acquire(opts), opts.key),
 *   };
 * }
 * ```
 */
declare function decorateAcquireResult<C extends BackendCapabilities>(backend: Mutations<C>, result: AcquireResult<C>, key: string, onReleaseError?: OnReleaseError, disposeTimeoutMs?: number): DecoratedAcquireResult<C>;
/**
 * Tries once to acquire a lock, on any backend whose results can be disposed of. A plain result without a lock is returned as
 * it is, because there is nothing to dispose of.
 *
 * @throws LockError `Internal` if the backend returns a plain result for a granted lock, which is released; or the error of
 *   its `acquire`
 * @example
 * ```ts
 * import { acquireHandle } from "syncguard";
 *
 * await using attempt = await acquireHandle(backend, { key: "report:nightly", ttlMs: 30_000 });
 * if (attempt.ok) console.log("working under fence", attempt.fence);
 * ```
 */
declare function acquireHandle<C extends BackendCapabilities>(backend: LockBackendLike<C>, opts: KeyOp & {
    /** Milliseconds after which the lock ends by itself. */
    ttlMs: number;
}): Promise<DecoratedAcquireResult<C>>;

/** What stores have to know: for authors of backends. */
/**
 * The key under which a store keeps a lock: `prefix:key`, with the key in NFC, or a hash of it where that is too long.
 *
 * @param prefix - namespace; trailing colons are dropped; may be empty
 * @param key - the user's key
 * @param limitBytes - the store's limit, in bytes of UTF-8; see `BACKEND_LIMITS`
 * @param reserveBytes - bytes to keep free for derived keys; see `RESERVE_BYTES`
 * @throws LockError `InvalidArgument` if the key is empty or the prefix leaves no room
 * @example
 * ```ts
 * import { BACKEND_LIMITS, makeStorageKey, RESERVE_BYTES } from "syncguard";
 *
 * const stored = makeStorageKey("app", "report:nightly", BACKEND_LIMITS.REDIS, RESERVE_BYTES.REDIS);
 * console.log(stored); // "app:report:nightly"
 * ```
 */
declare function makeStorageKey(prefix: string, key: string, limitBytes: number, reserveBytes: number): string;
/**
 * Whether a lock that ends at `expiresAtMs` counts as held at `nowMs`. All in milliseconds.
 *
 * @param toleranceMs - how long after its end it still counts as held: `TIME_TOLERANCE_MS` for every backend of this package
 * @example
 * ```ts
 * import { isLive, TIME_TOLERANCE_MS } from "syncguard";
 *
 * console.log(isLive(10_000, 10_500, TIME_TOLERANCE_MS)); // true: within the tolerance
 * console.log(isLive(10_000, 11_000, TIME_TOLERANCE_MS)); // false
 * ```
 */
declare function isLive(expiresAtMs: number, nowMs: number, toleranceMs: number): boolean;
/**
 * Milliseconds since the Unix epoch from the reply of Redis' TIME: seconds and microseconds, as decimal strings.
 *
 * @example
 * ```ts
 * import { calculateRedisServerTimeMs } from "syncguard";
 *
 * console.log(calculateRedisServerTimeMs(["1700000000", "250000"])); // 1700000000250
 * ```
 */
declare function calculateRedisServerTimeMs(timeTuple: [string, string]): number;

/**
 * A backend that does what `backend` does, and calls `onEvent` for each operation, including those of handles.
 *
 * Events carry hashes in place of identifiers, unless `includeRaw` allows more. They are not awaited, and errors of
 * `onEvent` or `includeRaw` do not affect the operation.
 *
 * @throws LockError `InvalidArgument` if `backend` is no backend or `onEvent` is no function
 * @example
 * ```ts
 * import { withTelemetry } from "syncguard";
 * import { createSqliteBackend } from "syncguard/sqlite";
 *
 * const observed = withTelemetry(createSqliteBackend("./locks.db"), {
 *   onEvent: ({ type, result, reason }) => console.log(type, result, reason ?? ""),
 * });
 * ```
 */
declare function withTelemetry<C extends BackendCapabilities>(backend: SyncGuardBackend<C>, options: TelemetryOptions): SyncGuardBackend<C>;
/**
 * A backend that does what yours does, and calls `onEvent` for each operation, including those of handles.
 *
 * @throws LockError `InvalidArgument` if `backend` is no backend or `onEvent` is no function
 * @example
 * ```ts
 * import { type LockBackend, type LockBackendLike, withTelemetry } from "syncguard";
 *
 * function observed(mine: LockBackendLike): LockBackend {
 *   return withTelemetry(mine, { onEvent: (event) => console.log(event) });
 * }
 * ```
 */
declare function withTelemetry<C extends BackendCapabilities>(backend: LockBackendLike<C>, options: TelemetryOptions): LockBackend<C>;

/**
 * The key in Unicode NFC, as every backend compares keys.
 *
 * @throws LockError `InvalidArgument` if it is not a string, empty, or longer than 512 bytes of UTF-8
 * @example
 * ```ts
 * import { normalizeAndValidateKey } from "syncguard";
 *
 * console.log(normalizeAndValidateKey("cafe\u0301") === "caf\u00e9"); // true
 * ```
 */
declare function normalizeAndValidateKey(key: string): string;
/**
 * Checks that a lock id is 22 characters of base64url.
 *
 * @throws LockError `InvalidArgument` if it is not
 * @example
 * ```ts
 * import { generateLockId, validateLockId } from "syncguard";
 *
 * validateLockId(generateLockId());
 * ```
 */
declare function validateLockId(lockId: string): void;
/**
 * A new lock id: 16 bytes from the system's random source, as 22 characters of base64url.
 *
 * @example
 * ```ts
 * import { generateLockId } from "syncguard";
 *
 * const lockId = generateLockId();
 * ```
 */
declare function generateLockId(): string;
/**
 * A fingerprint by which a key or a lock id can be recognised in logs: 24 hexadecimal digits. It does not hide the key,
 * because it is not cryptographic: a short key can be read from it (`hashKey("a")` starts with 61, the code of "a"), and
 * others can be found by trying. Do not show it to anybody who must not know the keys.
 *
 * @example
 * ```ts
 * import { hashKey } from "syncguard";
 *
 * console.log("waiting for lock", hashKey("report:nightly"));
 * ```
 */
declare function hashKey(value: string): HashId;
/**
 * A number as a fencing token: 15 digits, zero-padded. Fractions are cut off.
 *
 * @throws LockError `InvalidArgument` if it is negative, not a number, or has more than 15 digits
 * @example
 * ```ts
 * import { formatFence } from "syncguard/common";
 *
 * console.log(formatFence(42)); // "000000000000042"
 * ```
 */
declare function formatFence(value: number | bigint): Fence;
/**
 * Warns on the console that the fences of a key are running out.
 *
 * @param fence - the token that was just granted
 * @param key - the name to print for the key, unchanged; the backends of this package pass `hashKey(key)`
 * @example
 * ```ts
 * import { FENCE_THRESHOLDS, formatFence, hashKey, logFenceWarning } from "syncguard/common";
 *
 * const fence = formatFence(90_000_000_000_001n);
 * if (fence > FENCE_THRESHOLDS.WARN) logFenceWarning(fence, hashKey("report:nightly"));
 * ```
 */
declare function logFenceWarning(fence: Fence | number, key: string): void;
/**
 * Whether the result of an acquisition has a fencing token; for code that works with any backend.
 *
 * @example
 * ```ts
 * import { hasFence, type LockBackend } from "syncguard";
 *
 * async function attempt(anyBackend: LockBackend): Promise<string> {
 *   const result = await anyBackend.acquire({ key: "report:nightly", ttlMs: 30_000 });
 *   if (!result.ok) return "held by another";
 *   return hasFence(result) ? result.fence : "held without a fence";
 * }
 * ```
 */
declare function hasFence<C extends BackendCapabilities>(result: AcquireResult<C>): result is AcquireOk<C> & {
    /** The fencing token. */
    fence: Fence;
};

/** The public types of the PostgreSQL backend. */

/** PostgreSQL gives fencing tokens, and its clock decides. */
interface PostgresCapabilities extends BackendCapabilities {
    /** The store, for those who handle backends of several. */
    backend: "postgres";
    /** Each acquisition comes with a fencing token. */
    supportsFencing: true;
    /** The clock of the PostgreSQL server decides when a lock ends. */
    timeAuthority: "server";
}
/** Your client with postgres.js' `unsafe(text, params)`, which gives the rows. */
interface PostgresJsClient {
    /** Runs a statement with parameters and gives its rows. */
    unsafe: (...args: never[]) => unknown;
}
/** Your client with pg's `query(text, params)`, which gives `{ rows }`. */
interface PgClient {
    /** Runs a statement with parameters and gives `{ rows }`. */
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
 * Where a PostgreSQL server is. Options given besides `url` override it; missing ones are taken from the variables PGHOST,
 * PGUSER and so on.
 */
interface PostgresConnectionOptions {
    /** A URL as for {@link createPostgresBackend}. */
    url?: string | undefined;
    /** Names, addresses, or folders of unix sockets; of several, the one that accepts writes, on the latest timeline. Default `"localhost"`. */
    host?: string | readonly string[] | undefined;
    /** The port: one for all hosts, or one for each. Default 5432. */
    port?: number | readonly number[] | undefined;
    /** A unix socket, such as `/run/postgresql/.s.PGSQL.5432`, instead of host and port. */
    path?: string | undefined;
    /** The database. Default: the name of the role. */
    database?: string | undefined;
    /** The role. Default: the name of the operating system's user. */
    user?: string | undefined;
    /** The password, or a function that gives one for each connection, for example a token that expires. */
    password?: string | (() => string | PromiseLike<string>) | undefined;
    /** The mode, as in libpq. `true` means `"verify-full"`, `false` means `"disable"`. Default `"prefer"`. */
    ssl?: boolean | "disable" | "allow" | "prefer" | "require" | "verify-ca" | "verify-full" | PostgresSslOptions | undefined;
    /** The name of the connections in `pg_stat_activity`. Default `"syncguard"`. */
    application_name?: string | undefined;
    /** Command-line options of the sessions, such as `-c search_path=locks`. */
    options?: string | undefined;
    /** Session settings by name, such as `statement_timeout`, `lock_timeout` and `search_path`. */
    connection?: Readonly<Record<string, string | number | boolean | undefined>> | undefined;
    /** Which servers to accept. Default: with several hosts, only one that accepts writes. */
    target_session_attrs?: "any" | "read-write" | "primary" | undefined;
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
    /** The table of locks. */
    tableName: string;
    /** The table of fence counters. */
    fenceTableName: string;
    /** Whether `isLocked()` deletes what expired more than two seconds ago. */
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
 * @example
 * ```ts
 * import postgres from "postgres";
 * import { createPostgresBackend, setupSchema } from "syncguard/postgres";
 *
 * const sql = postgres("postgres://app:secret@localhost/app");
 * await setupSchema(sql);
 * const backend = createPostgresBackend(sql);
 * await using held = await backend.lock("report:nightly", { ttlMs: 30_000 });
 * ```
 */
declare function createPostgresBackend(sql: PostgresClient | string | PostgresConnectionOptions, options?: PostgresBackendOptions): SyncGuardBackend<PostgresCapabilities>;
/**
 * Creates the tables and indexes that are missing. Call it before the first lock, as often and in as many processes as you
 * like. It also works on tables that SyncGuard 2 for TypeScript has created.
 *
 * Needs the right to create tables, and no rights if nothing is missing. It keeps nobody who uses the tables waiting: a change
 * waits until no long transaction has them open.
 *
 * @param sql - as for {@link createPostgresBackend}
 * @throws LockError `InvalidArgument` for options, `AuthFailed` for missing rights, `NetworkTimeout` that names who has had a table open for a
 *   minute, and the errors of connecting
 * @example
 * ```ts
 * import { setupSchema } from "syncguard/postgres";
 *
 * await setupSchema("postgres://app:secret@localhost/app");
 * ```
 */
declare function setupSchema(sql: PostgresClient | string | PostgresConnectionOptions, options?: PostgresSchemaOptions): Promise<void>;

/** The public types of the Redis backend. */

/** Redis gives fencing tokens, and its clock decides. */
interface RedisCapabilities extends BackendCapabilities {
    /** The store, for those who handle backends of several. */
    backend: "redis";
    /** Each acquisition comes with a fencing token. */
    supportsFencing: true;
    /** The clock of the Redis server decides when a lock ends. */
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
    /** Runs a script of Lua on the server. */
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
    /** The port. Default 6379. */
    port?: number | undefined;
}
/** Where a Redis server is. Options given besides `url` override it. */
interface RedisConnectionOptions {
    /** A URL as for {@link createRedisBackend}. */
    url?: string | undefined;
    /** A name or an address. Default `"localhost"`. */
    host?: string | undefined;
    /** The port. Default 6379. */
    port?: number | undefined;
    /** A socket in the file system, instead of host and port. */
    path?: string | undefined;
    /** The number of the database. Default 0, which is the only one of a cluster. */
    db?: number | undefined;
    /** The ACL user, or a function as for `password`; needs a password. Default: the default user. */
    username?: string | (() => string | PromiseLike<string>) | undefined;
    /** The password, or a function that gives one for each connection, for example a token that expires. Default: none. */
    password?: string | (() => string | PromiseLike<string>) | undefined;
    /** TLS, or `true` for TLS with the certificates that Node trusts. Default: only with a URL of `rediss:` or `valkeys:`. */
    tls?: RedisTlsOptions | boolean | undefined;
    /**
     * Some nodes of a Redis Cluster, instead of `url` or of host and port: each `"host:port"`, a `redis://` or `rediss://` URL,
     * or `{ host, port }`. They are asked for the others. All other options apply to every node; URLs with a login must have
     * the same one.
     *
     * @example
     * ```ts
     * import { createRedisBackend } from "syncguard/redis";
     *
     * const cluster = createRedisBackend({ nodes: ["10.0.0.1:7000", "10.0.0.2:7000"], password: "…" });
     * ```
     */
    nodes?: readonly (string | RedisClusterNode)[] | undefined;
    /**
     * Where the nodes of a cluster can be reached, if not at the addresses that they announce: behind NAT, in containers,
     * through tunnels. By the announced `"host:port"`; other nodes are used as they are. A function is not possible here.
     *
     * @example
     * ```ts
     * import { createRedisBackend } from "syncguard/redis";
     *
     * const cluster = createRedisBackend({
     *   nodes: ["127.0.0.1:17000"],
     *   natMap: { "10.0.0.1:7000": { host: "127.0.0.1", port: 17000 } },
     * });
     * ```
     */
    natMap?: Readonly<Record<string, {
        /** Where the node can be reached: a name or an address. */
        host: string;
        /** The port there. */
        port: number;
    }>> | undefined;
    /** Sentinels to ask for the primary, instead of host and port. With TLS, they must use it too. */
    sentinels?: readonly {
        /** A name or an address. */
        host: string;
        /** The port. Default 26379. */
        port?: number | undefined;
    }[] | undefined;
    /** The name that the Sentinels use for the primary; needed with `sentinels`. */
    name?: string | undefined;
    /** The ACL user of the Sentinels themselves. Default: their default user. */
    sentinelUsername?: string | undefined;
    /** The password of the Sentinels themselves. Default: none. */
    sentinelPassword?: string | undefined;
    /** The name of the connection in `CLIENT LIST`. */
    connectionName?: string | undefined;
    /** A prefix of every key, like ioredis' option `keyPrefix`, and not the same as the backend's `keyPrefix`. */
    clientKeyPrefix?: string | undefined;
}
/** Options of the Redis backend. */
interface RedisBackendOptions extends CommonBackendOptions {
    /** Namespace of all keys. Default `"syncguard"`. */
    keyPrefix?: string | undefined;
    /**
     * How many replicas must have a lock before it counts as granted, and an extension before it counts (`WAIT`). If they do not have
     * it within a tenth of `operationTimeoutMs`, a lock is released again, an extension does not move the end, and either fails with
     * `ServiceUnavailable`. Both have connections of their own then; through a client that cannot be carried over, this is refused.
     * Default 0: the primary's word is enough.
     */
    replicas?: number | undefined;
    /**
     * Milliseconds after which the fence counter of a key goes if nobody has acquired the lock; at least 3,600,000, an hour. For keys
     * that are used once, such as ids of webhooks. Not while processes on SyncGuard 2.x share the store, whose fences would begin
     * at 1. Default: counters stay.
     */
    fenceTtlMs?: number | undefined;
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
    /** Namespace of all keys. */
    keyPrefix: string;
    /** Whether `isLocked()` deletes what expired more than two seconds ago. */
    cleanupInIsLocked: boolean;
}
/** A lock as Redis keeps it, in JSON. */
interface LockData {
    /** The lock id: whoever knows it can release the lock. */
    lockId: string;
    /** When the lock ends, in milliseconds since the Unix epoch. */
    expiresAtMs: number;
    /** When the lock was granted, in milliseconds since the Unix epoch. */
    acquiredAtMs: number;
    /** The user's key in Unicode NFC. */
    key: string;
    /** The fencing token: 15 decimal digits. */
    fence: string;
}

/**
 * A backend that keeps locks in Redis: in one server, with or without replicas, TLS and Sentinel, or in a Redis Cluster.
 *
 * It connects at the first operation, and again when the connection is lost. An idle connection does not keep the
 * process alive.
 *
 * @param client - one of
 *   - a client of ioredis or node-redis, also a `Cluster` or of `createCluster`: its settings are read, and the backend makes
 *     a connection of its own. If the settings cannot be carried over, or if it is a wrapper or a mock, its `eval` is used
 *     instead: see {@link RedisBackendOptions.transport}. You close it yourself.
 *   - a URL: `redis://user:password@host:6379/0`, `rediss://…` with TLS, `unix:///path/redis.sock?db=0`,
 *     `redis+sentinel://host:26379,host2:26379/name/0`, `redis+cluster://host:7000,host2:7001`;
 *     `valkey` may stand in the place of `redis` in each
 *   - connection options
 * @throws LockError `InvalidArgument` that names the setting. That a server is down is only reported by the first
 *   operation.
 * @example
 * ```ts
 * import { Redis } from "ioredis";
 * import { createRedisBackend } from "syncguard/redis";
 *
 * const byUrl = createRedisBackend("redis://localhost:6379");
 * const byClient = createRedisBackend(new Redis("redis://localhost:6379"), { keyPrefix: "app" });
 * await using held = await byUrl.lock("report:nightly", { ttlMs: 30_000 });
 * ```
 */
declare function createRedisBackend(client: RedisClient | string | RedisConnectionOptions, options?: RedisBackendOptions): SyncGuardBackend<RedisCapabilities>;

/** `"server"` means the machine's clock, which all users of the file share. */
interface SqliteCapabilities extends BackendCapabilities {
    /** The store, for those who handle backends of several. */
    backend: "sqlite";
    /** Each acquisition comes with a fencing token. */
    supportsFencing: true;
    /** The clock of the machine, which all processes that use the file share. */
    timeAuthority: "server";
}
/** Options of the SQLite backend. */
interface SqliteBackendOptions extends CommonBackendOptions {
    /** The database file, in an existing folder. Default `":memory:"`: a database in memory that ends with the process. */
    path?: string | undefined;
    /** Milliseconds after which an operation fails with `NetworkTimeout`, e.g. while others hold the database. Default 5000. */
    operationTimeoutMs?: number | undefined;
    /**
     * Whether the file may be on a network file system. Then no other machine may use the file, because the locks do not
     * work across machines. Default false: such a path is an `InvalidArgument`.
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
 * @example
 * ```ts
 * import { lock } from "syncguard";
 * import { createSqliteBackend } from "syncguard/sqlite";
 *
 * const backend = createSqliteBackend("./locks.db");
 * await lock(backend, () => console.log("writing"), { key: "report:nightly" });
 * ```
 */
declare function createSqliteBackend(path: string, options?: SqliteBackendOptions): SyncGuardBackend<SqliteCapabilities>;
/**
 * A backend that keeps locks in a SQLite database, with the path among the options; without one, in memory.
 *
 * @throws LockError `InvalidArgument` for invalid options. The file is opened by the first operation.
 * @example
 * ```ts
 * import { createSqliteBackend } from "syncguard/sqlite";
 *
 * const inMemory = createSqliteBackend(); // for this process alone
 * const shared = createSqliteBackend({ path: "./locks.db", operationTimeoutMs: 2_000 });
 * ```
 */
declare function createSqliteBackend(options?: SqliteBackendOptions): SyncGuardBackend<SqliteCapabilities>;

/** Waits for a lock and holds it, while a callback runs or until its holder releases it. */

/**
 * `lock()` bound to `backend`.
 *
 * @throws LockError `InvalidArgument` if it is no backend
 * @example
 * ```ts
 * import { createAutoLock } from "syncguard/common";
 * import { createSqliteBackend } from "syncguard/sqlite";
 *
 * const lock = createAutoLock(createSqliteBackend("./locks.db"));
 * await lock(({ fence }) => console.log("working under fence", fence), { key: "report:nightly" });
 * ```
 */
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
    /** The lock was released or extended. */
    ok: true;
} | {
    /** Nothing was done. */
    ok: false;
    /** Why nothing was done. */
    reason: MutationReason;
};
/** The state of a lock document. */
type DocumentState = {
    /** Whether there is a document for the lock. */
    documentExists: boolean;
    /** Whether it has the caller's lock id. */
    ownershipValid: boolean;
    /** Whether the lock has not ended yet, as `isLive` says. */
    isLive: boolean;
};
/**
 * The condition for the code of a Redis script or the state of a lock document.
 *
 * @example
 * ```ts
 * import { mapBackendObservation } from "syncguard/common";
 *
 * console.log(mapBackendObservation(1)); // "succeeded"
 * ```
 */
declare function mapBackendObservation(observation: number | DocumentState): MutationCondition;
/**
 * The condition for the code of a Redis script.
 *
 * @param code - 1: done; 0: another's lock; -1: no lock; -2: the lock had ended; any other is `"ambiguous-unknown"`
 * @example
 * ```ts
 * import { mapRedisScriptResult } from "syncguard/common";
 *
 * console.log(mapRedisScriptResult(-2)); // "observable-expired"
 * ```
 */
declare function mapRedisScriptResult(code: number): MutationCondition;
/**
 * The condition for the state of a lock document.
 *
 * @example
 * ```ts
 * import { mapFirestoreConditions } from "syncguard/common";
 *
 * const state = { documentExists: true, ownershipValid: false, isLive: true };
 * console.log(mapFirestoreConditions(state)); // "ownership-mismatch"
 * ```
 */
declare function mapFirestoreConditions(state: DocumentState): MutationCondition;
/**
 * The result for a condition: only an expiry that was seen counts as `"expired"`.
 *
 * For authors of backends. The results of `release` and `extend` show no reason: see {@link FAILURE_REASON}.
 *
 * @example
 * ```ts
 * import { mapToMutationResult } from "syncguard/common";
 *
 * console.log(mapToMutationResult("never-existed")); // { ok: false, reason: "not-found" }
 * ```
 */
declare function mapToMutationResult(condition: MutationCondition): MutationResult;

/**
 * Throws if the signal is aborted. For backends whose driver does not support signals.
 *
 * @throws LockError `Aborted`
 * @example
 * ```ts
 * import { checkAborted } from "syncguard/common";
 *
 * function query(text: string, signal?: AbortSignal): void {
 *   checkAborted(signal);
 *   console.log("sent", text);
 * }
 * ```
 */
declare function checkAborted(signal?: AbortSignal): void;
/**
 * Resolves after `ms` milliseconds, or rejects as soon as the signal is aborted.
 *
 * @throws LockError `Aborted`; `InvalidArgument` for what is no signal
 * @example
 * ```ts
 * import { delay } from "syncguard/common";
 *
 * await delay(100, AbortSignal.timeout(1_000));
 * ```
 */
declare function delay(ms: number, signal?: AbortSignal): Promise<void>;

/** `syncguard/redis` */

/**
 * `lock()` bound to a Redis backend of its own, which `lock.close()` closes.
 *
 * @param client - as for {@link createRedisBackend}
 * @param options - as for {@link createRedisBackend}
 * @throws LockError `InvalidArgument` that names the setting
 * @example
 * ```ts
 * import { createLock } from "syncguard/redis";
 *
 * const lock = createLock("redis://localhost:6379");
 * await lock(({ fence }) => console.log("working under fence", fence), { key: "report:nightly" });
 * ```
 */
declare function createLock$3(client: RedisClient | string | RedisConnectionOptions, options?: RedisBackendOptions): ClosableLock<RedisCapabilities>;

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

/**
 * `lock()` bound to a PostgreSQL backend of its own, which `lock.close()` closes.
 *
 * @param sql - as for {@link createPostgresBackend}; the tables must exist
 * @param options - as for {@link createPostgresBackend}
 * @throws LockError `InvalidArgument` that names the setting
 * @example
 * ```ts
 * import { createLock } from "syncguard/postgres";
 *
 * const lock = createLock("postgres://app:secret@localhost/app");
 * await lock(({ fence }) => console.log("working under fence", fence), { key: "report:nightly" });
 * ```
 */
declare function createLock$2(sql: PostgresClient | string | PostgresConnectionOptions, options?: PostgresBackendOptions): ClosableLock<PostgresCapabilities>;

type postgres_GuardQuery = GuardQuery;
type postgres_PgClient = PgClient;
type postgres_PostgresBackendOptions = PostgresBackendOptions;
type postgres_PostgresCapabilities = PostgresCapabilities;
type postgres_PostgresClient = PostgresClient;
type postgres_PostgresConfig = PostgresConfig;
type postgres_PostgresConnectionOptions = PostgresConnectionOptions;
type postgres_PostgresDone = PostgresDone;
type postgres_PostgresGuard = PostgresGuard;
type postgres_PostgresJsClient = PostgresJsClient;
type postgres_PostgresSchemaOptions = PostgresSchemaOptions;
type postgres_PostgresSslOptions = PostgresSslOptions;
type postgres_PostgresTransaction = PostgresTransaction;
declare const postgres_createPostgresBackend: typeof createPostgresBackend;
declare const postgres_setupSchema: typeof setupSchema;
declare namespace postgres {
  export { createLock$2 as createLock, postgres_createPostgresBackend as createPostgresBackend, postgres_setupSchema as setupSchema };
  export type { postgres_GuardQuery as GuardQuery, postgres_PgClient as PgClient, postgres_PostgresBackendOptions as PostgresBackendOptions, postgres_PostgresCapabilities as PostgresCapabilities, postgres_PostgresClient as PostgresClient, postgres_PostgresConfig as PostgresConfig, postgres_PostgresConnectionOptions as PostgresConnectionOptions, postgres_PostgresDone as PostgresDone, postgres_PostgresGuard as PostgresGuard, postgres_PostgresJsClient as PostgresJsClient, postgres_PostgresSchemaOptions as PostgresSchemaOptions, postgres_PostgresSslOptions as PostgresSslOptions, postgres_PostgresTransaction as PostgresTransaction };
}

/** `syncguard/firestore` */

/**
 * `lock()` bound to a Firestore backend of its own, which `lock.close()` closes.
 *
 * @param db - as for {@link createFirestoreBackend}
 * @param options - as for {@link createFirestoreBackend}
 * @throws LockError `InvalidArgument` that names the setting
 * @example
 * ```ts
 * import { createLock } from "syncguard/firestore";
 *
 * const lock = createLock({ projectId: "my-project" });
 * await lock(({ fence }) => console.log("working under fence", fence), { key: "report:nightly" });
 * ```
 */
declare function createLock$1(db?: FirestoreClient | FirestoreConnectionOptions, options?: FirestoreBackendOptions): ClosableLock<FirestoreCapabilities>;

type firestore_FirestoreBackendOptions = FirestoreBackendOptions;
type firestore_FirestoreCapabilities = FirestoreCapabilities;
type firestore_FirestoreClient = FirestoreClient;
type firestore_FirestoreConfig = FirestoreConfig;
type firestore_FirestoreConnectionOptions = FirestoreConnectionOptions;
type firestore_FirestoreDone = FirestoreDone;
type firestore_FirestoreGuard = FirestoreGuard;
type firestore_FirestoreTransaction = FirestoreTransaction;
type firestore_LockDocument = LockDocument;
declare const firestore_createFirestoreBackend: typeof createFirestoreBackend;
declare namespace firestore {
  export { firestore_createFirestoreBackend as createFirestoreBackend, createLock$1 as createLock };
  export type { firestore_FirestoreBackendOptions as FirestoreBackendOptions, firestore_FirestoreCapabilities as FirestoreCapabilities, firestore_FirestoreClient as FirestoreClient, firestore_FirestoreConfig as FirestoreConfig, firestore_FirestoreConnectionOptions as FirestoreConnectionOptions, firestore_FirestoreDone as FirestoreDone, firestore_FirestoreGuard as FirestoreGuard, firestore_FirestoreTransaction as FirestoreTransaction, firestore_LockDocument as LockDocument };
}

/** `syncguard/sqlite` */

/**
 * `lock()` bound to a SQLite backend of its own, which `lock.close()` closes.
 *
 * @param path - as for {@link createSqliteBackend}
 * @param options - as for {@link createSqliteBackend}
 * @throws LockError `InvalidArgument` for invalid options
 * @example
 * ```ts
 * import { createLock } from "syncguard/sqlite";
 *
 * const lock = createLock("./locks.db");
 * await lock(({ fence }) => console.log("working under fence", fence), { key: "report:nightly" });
 * ```
 */
declare function createLock(path: string, options?: SqliteBackendOptions): ClosableLock<SqliteCapabilities>;
/**
 * `lock()` bound to a SQLite backend of its own, with the path among the options.
 *
 * @param options - as for {@link createSqliteBackend}
 *
 * @throws LockError `InvalidArgument` for invalid options
 * @example
 * ```ts
 * import { createLock } from "syncguard/sqlite";
 *
 * const lock = createLock({ path: "./locks.db", operationTimeoutMs: 2_000 });
 * await lock(() => console.log("writing"), { key: "report:nightly" });
 * ```
 */
declare function createLock(options?: SqliteBackendOptions): ClosableLock<SqliteCapabilities>;

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
    /** What the caller asks of the extension; in requests. */
    readonly options?: unknown;
    /** What the extension answers; in responses. */
    readonly data?: unknown;
}
/** A request. It may have more members. */
interface ForrstRequest {
    /** Name and version of the protocol: `{ name: "forrst", version: "0.1.0" }`. Copied into the response. */
    readonly protocol?: unknown;
    /** The caller's name for the request. Copied into the response. */
    readonly id?: unknown;
    /** Which function, and with what. */
    readonly call: {
        /** The name of the function; a lock without the scope `"global"` is one of this function. */
        readonly function: string;
        /** The version of the function. */
        readonly version?: unknown;
        /** What the function is called with. */
        readonly arguments?: unknown;
    };
    /** The extensions that the request uses. */
    readonly extensions?: readonly ForrstExtension[] | undefined;
}
/** An error in a response. */
interface ForrstError {
    /** What went wrong, for programs, such as `LOCK_TIMEOUT`. */
    readonly code: string;
    /** What went wrong, for people. */
    readonly message: string;
    /** What the error is about, such as the field that is wrong. */
    readonly details?: unknown;
    /**
     * Whether the same request may succeed later. On errors of this package it is not enumerable: servers can read it, but
     * it is not in the JSON, as the extension's errors have no such member.
     */
    readonly retryable?: boolean;
}
/** A response. It may have more members. */
interface ForrstResponse {
    /** Name and version of the protocol, as in the request. */
    readonly protocol?: unknown;
    /** The caller's name for the request, as in the request. */
    readonly id?: unknown;
    /** What the function returned; `null` if it failed. */
    readonly result?: unknown;
    /** What went wrong. */
    readonly errors?: readonly ForrstError[] | undefined;
    /** The data of extensions. */
    readonly extensions?: readonly ForrstExtension[] | undefined;
}
/** The lock that a function runs under. */
type AtomicLockHandle<C extends BackendCapabilities = FencingCapabilities> = LockHandleMembers<C> & {
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
/**
 * A system function of the extension. Bad arguments and refusals become responses with `errors`.
 *
 * @throws LockError the store's error; `Aborted` if `options.signal` came first
 */
type AtomicLockFunction = (request: ForrstRequest, options?: AtomicLockCallOptions) => Promise<ForrstResponse>;
/** The names of the system functions. */
type AtomicLockFunctionName = "urn:cline:forrst:ext:atomic-lock:fn:release" | "urn:cline:forrst:ext:atomic-lock:fn:force-release" | "urn:cline:forrst:ext:atomic-lock:fn:status";
/** The atomic-lock extension of a server. */
interface AtomicLock<C extends BackendCapabilities = FencingCapabilities> {
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
     * @throws LockError the store's error; `Aborted` if `options.signal` ended the waiting; `InvalidArgument` for what is no
     *   request or no response
     * @example
     * ```ts
     * import { createAtomicLock } from "syncguard/forrst";
     *
     * const request = {
     *   id: "1",
     *   call: { function: "reports.write", arguments: {} },
     *   extensions: [
     *     {
     *       urn: "urn:forrst:ext:atomicLock",
     *       options: { key: "nightly", ttl: { value: 30, unit: "second" } },
     *     },
     *   ],
     * };
     * const response = await createAtomicLock(backend).handle(request, ({ id }, lock) => {
     *   return { id, result: `written under fence ${lock?.fence}` };
     * });
     * ```
     */
    handle<Request extends ForrstRequest>(request: Request, next: (request: Request, lock: AtomicLockHandle<C> | undefined) => ForrstResponse | Promise<ForrstResponse>, options?: AtomicLockCallOptions): Promise<ForrstResponse>;
}

/** `syncguard/forrst`: the atomic-lock extension of Forrst, `urn:forrst:ext:atomicLock`. */

/**
 * The atomic-lock extension for a Forrst server, on any backend of this package.
 *
 * @param backend - where the locks are kept; servers exclude each other only if they use the same store
 * @param options - who may force a release, and who hears of failed ones
 * @throws LockError `InvalidArgument` for invalid options, and for a backend of your own that only implements
 *   `LockBackend`, because it has no owner labels
 * @example
 * ```ts
 * import { createAtomicLock, type ForrstRequest, type ForrstResponse } from "syncguard/forrst";
 * import { createRedisBackend } from "syncguard/redis";
 *
 * const atomicLock = createAtomicLock(createRedisBackend("redis://localhost:6379"));
 *
 * // Where the server handles a request:
 * function serve(request: ForrstRequest): Promise<ForrstResponse> {
 *   return atomicLock.handle(request, ({ id }, lock) => ({ id, result: { fence: lock?.fence } }));
 * }
 * ```
 */
declare function createAtomicLock<C extends BackendCapabilities>(backend: SyncGuardBackend<C>, options?: AtomicLockOptions): AtomicLock<C>;

type forrst_AtomicLock<C extends BackendCapabilities = FencingCapabilities> = AtomicLock<C>;
type forrst_AtomicLockCallOptions = AtomicLockCallOptions;
type forrst_AtomicLockFunction = AtomicLockFunction;
type forrst_AtomicLockFunctionName = AtomicLockFunctionName;
type forrst_AtomicLockHandle<C extends BackendCapabilities = FencingCapabilities> = AtomicLockHandle<C>;
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

/** Where the locks are: a client of Redis, the URL of any store, or a backend of this package. */
type Client = RedisClient | string | SyncGuardBackend;
/** How one client has voted. */
type ClientExecutionResult = {
    /** The client. */
    client: Client;
    /** The operation was carried out. */
    vote: "for";
    /** For how many resources. */
    value: number;
} | {
    /** The client. */
    client: Client;
    /** The operation was not carried out. */
    vote: "against";
    /** Why not. */
    error: Error;
};
/** How the votes of an attempt were; here there is one. */
type ExecutionStats = {
    /** How many clients there are: one. */
    readonly membershipSize: number;
    /** How many of them must agree: one. */
    readonly quorumSize: number;
    /** Those for which the operation was carried out. */
    readonly votesFor: Set<Client>;
    /** Those for which it was not, and why. */
    readonly votesAgainst: Map<Client, Error>;
};
/** What an operation has come to. */
type ExecutionResult = {
    /** The attempts: one stands for all. */
    attempts: ReadonlyArray<Promise<ExecutionStats>>;
};
/** The settings of redlock 5. */
interface Settings {
    /** The part of a lock's duration that is taken off its `expiration`. Default 0.01. */
    readonly driftFactor: number;
    /** Attempts after the first; -1 or `Infinity` for no limit. Default 10. */
    readonly retryCount: number;
    /** Milliseconds between two attempts. Default 200. An attempt that follows a release is made at once, and is no retry. */
    readonly retryDelay: number;
    /** Whether the time between two attempts is random: with 0 it is not, otherwise it is by up to a third of `retryDelay`. Default 100. */
    readonly retryJitter: number;
    /** Milliseconds before the end of a lock at which `using` extends it. Default 500. */
    readonly automaticExtensionThreshold: number;
}
/** What the constructor takes. */
type RedlockSettings = Partial<Settings> & {
    /** Of several clients, whether the first is used and the others are left alone. Default false: they are refused. */
    readonly firstClientOnly?: boolean | undefined;
};
/** The signal that the routine of `using` is given. */
type RedlockAbortSignal = AbortSignal & {
    /** Why the lock was lost, once it is. */
    error?: Error;
};

/**
 * Somebody holds one of the resources, or the lock is gone.
 *
 * @example
 * ```ts
 * import Redlock, { ExecutionError, ResourceLockedError } from "syncguard/redlock";
 *
 * const redlock = new Redlock(["redis://localhost:6379"]);
 * try {
 *   await redlock.acquire(["report"], 5_000, { retryCount: 0 });
 * } catch (error) {
 *   if (!(error instanceof ExecutionError)) throw error;
 *   if (error.cause instanceof ResourceLockedError) console.log("somebody else is on it");
 * }
 * ```
 */
declare class ResourceLockedError extends Error {
    /**
     * An error with that message.
     *
     * @param message - for people
     */
    constructor(message: string);
}
/**
 * An operation was not carried out. Its `cause` says why: a {@link ResourceLockedError} or a `LockError`.
 *
 * @example
 * ```ts
 * import Redlock, { ExecutionError, ResourceLockedError } from "syncguard/redlock";
 *
 * const redlock = new Redlock(["redis://localhost:6379"]);
 * try {
 *   await redlock.acquire(["report"], 5_000, { retryCount: 0 });
 * } catch (error) {
 *   if (!(error instanceof ExecutionError)) throw error;
 *   if (error.cause instanceof ResourceLockedError) console.log("somebody else is on it");
 * }
 * ```
 */
declare class ExecutionError extends Error {
    /** The attempts: one stands for all. */
    readonly attempts: ReadonlyArray<Promise<ExecutionStats>>;
    /**
     * An error with that message.
     *
     * @param message - for people
     * @param attempts - how the votes were
     * @param options - the cause
     */
    constructor(message: string, attempts: ReadonlyArray<Promise<ExecutionStats>>, options?: {
        /** What it came of. */
        cause?: unknown;
    });
}

/** The class of redlock 5, on the backends of this package. */

/** The routine of `using`. */
type Routine<T> = (signal: RedlockAbortSignal) => Promise<T>;
/**
 * A lock on resources: on all of them, or it would not be there.
 *
 * @example
 * ```ts
 * import Redlock, { Lock } from "syncguard/redlock";
 *
 * // What another process has acquired, and has sent here.
 * function received(redlock: Redlock, resources: string[], value: string): Lock {
 *   return new Lock(redlock, resources, value, [], Date.now() + 5_000);
 * }
 * ```
 */
declare class Lock {
    /** Who has acquired it. */
    readonly redlock: Redlock;
    /** What is locked. */
    readonly resources: string[];
    /** Proof of ownership: the lock id; of several resources, their lock ids with commas between. */
    readonly value: string;
    /** How it was acquired. */
    readonly attempts: ReadonlyArray<Promise<ExecutionStats>>;
    /** Until when it is held for certain, in milliseconds since the Unix epoch, by the clock of this machine; 0 once it was released. */
    expiration: number;
    /** What redlock does not have: the fencing token of each resource, larger than that of every earlier lock on it. */
    readonly fences: ReadonlyMap<string, Fence>;
    /**
     * A lock that was acquired elsewhere, too: its resources and its value are all that is needed to release it.
     *
     * @param fences - the fencing tokens, if they are known
     */
    constructor(redlock: Redlock, resources: string[], value: string, attempts: ReadonlyArray<Promise<ExecutionStats>>, expiration: number, fences?: ReadonlyMap<string, Fence>);
    /**
     * Frees the resources: `redlock.release(lock)`.
     *
     * @throws ExecutionError if the lock is gone, or the store has failed
     * @example
     * ```ts
     * import Redlock from "syncguard/redlock";
     *
     * const lock = await new Redlock(["redis://localhost:6379"]).acquire(["report"], 5_000);
     * await lock.release();
     * ```
     */
    release(): Promise<ExecutionResult>;
    /**
     * Makes the lock end `duration` milliseconds from now: `redlock.extend(lock, duration)`.
     *
     * @returns the lock to use from now on
     * @throws ExecutionError if the lock is gone, or the store has failed
     * @example
     * ```ts
     * import Redlock from "syncguard/redlock";
     *
     * let lock = await new Redlock(["redis://localhost:6379"]).acquire(["report"], 5_000);
     * lock = await lock.extend(5_000);
     * ```
     */
    extend(duration: number): Promise<Lock>;
}
/**
 * The class of redlock 5 on one store: a client of Redis, the URL of any store, or a backend of this package.
 *
 * Its `"error"` events need no listener. Locks of redlock itself have other keys in the store: the two do not exclude each other.
 *
 * @example
 * ```ts
 * import Redlock from "syncguard/redlock";
 *
 * const redlock = new Redlock(["redis://localhost:6379"], { retryCount: 20 });
 * const lock = await redlock.acquire(["account:1", "account:2"], 5_000);
 * try {
 *   console.log("both are locked");
 * } finally {
 *   await lock.release();
 * }
 * ```
 */
declare class Redlock extends EventEmitter {
    #private;
    /** What was given. Only the first is used. */
    readonly clients: Set<Client>;
    /** The settings, with redlock's defaults. */
    readonly settings: Settings;
    /**
     * Connects at the first operation. From a client of Redis the settings are read, and a connection of its own is made, as
     * `createRedisBackend` does.
     *
     * @param clients - one
     * @param settings - those of redlock, and `firstClientOnly`
     * @param scripts - taken for its likeness to redlock: there are no scripts to replace
     * @throws LockError `InvalidArgument` that names the setting; for several clients; for scripts
     */
    constructor(clients: Iterable<Client>, settings?: RedlockSettings, scripts?: Readonly<Record<string, undefined>>);
    /**
     * Closes the connection, and calls `quit()` of the client that was given, if it has one.
     *
     * @example
     * ```ts
     * import Redlock from "syncguard/redlock";
     *
     * const redlock = new Redlock(["redis://localhost:6379"]);
     * await redlock.quit();
     * ```
     */
    quit(): Promise<void>;
    /**
     * Waits for all resources, and locks them or none.
     *
     * @param resources - their names
     * @param duration - milliseconds after which the lock ends by itself
     * @throws ExecutionError if they are not free within the retries, or the store has failed; LockError `InvalidArgument`
     * @example
     * ```ts
     * import Redlock from "syncguard/redlock";
     *
     * const redlock = new Redlock(["redis://localhost:6379"], { retryCount: 20 });
     * const lock = await redlock.acquire(["account:1", "account:2"], 5_000);
     * console.log(lock.value, new Date(lock.expiration));
     * ```
     */
    acquire(resources: string[], duration: number, settings?: Partial<Settings>): Promise<Lock>;
    /**
     * Frees the resources of a lock.
     *
     * @param settings - taken for its likeness to redlock: a release is repeated by itself while the store cannot be reached
     * @throws ExecutionError if the lock is gone, or the store has failed: then it ends by itself
     * @example
     * ```ts
     * import Redlock from "syncguard/redlock";
     *
     * const redlock = new Redlock(["redis://localhost:6379"]);
     * const lock = await redlock.acquire(["report"], 5_000);
     * await redlock.release(lock);
     * ```
     */
    release(lock: Lock, settings?: Partial<Settings>): Promise<ExecutionResult>;
    /**
     * Makes a lock end `duration` milliseconds from now. The lock that was given has no `expiration` afterwards. While the store cannot be
     * reached, it is tried again, as the settings say, until the lock ends.
     *
     * @returns the lock to use from now on
     * @throws ExecutionError if the lock has ended or is gone, or the store has failed; LockError `InvalidArgument`
     * @example
     * ```ts
     * import Redlock from "syncguard/redlock";
     *
     * const redlock = new Redlock(["redis://localhost:6379"]);
     * let lock = await redlock.acquire(["report"], 5_000);
     * lock = await redlock.extend(lock, 10_000);
     * ```
     */
    extend(existing: Lock, duration: number, settings?: Partial<Settings>): Promise<Lock>;
    /**
     * Runs `routine` under a lock that extends itself.
     *
     * @param routine - is given a signal, which is aborted when the lock is lost; `signal.error` says why
     * @throws what the routine throws; ExecutionError if the resources were not free, or the lock was lost meanwhile
     * @example
     * ```ts
     * import Redlock from "syncguard/redlock";
     *
     * const redlock = new Redlock(["redis://localhost:6379"]);
     * await redlock.using(["account:1", "account:2"], 5_000, async (signal) => {
     *   console.log("both are locked");
     *   if (signal.aborted) throw signal.error;
     * });
     * ```
     */
    using<T>(resources: string[], duration: number, settings: Partial<Settings>, routine?: Routine<T>): Promise<T>;
    /** With the settings of the class. */
    using<T>(resources: string[], duration: number, routine: Routine<T>): Promise<T>;
}

/** `syncguard/redlock`: the class of redlock 5. */

type redlock_Client = Client;
type redlock_ClientExecutionResult = ClientExecutionResult;
type redlock_ExecutionError = ExecutionError;
declare const redlock_ExecutionError: typeof ExecutionError;
type redlock_ExecutionResult = ExecutionResult;
type redlock_ExecutionStats = ExecutionStats;
type redlock_Lock = Lock;
declare const redlock_Lock: typeof Lock;
type redlock_Redlock = Redlock;
declare const redlock_Redlock: typeof Redlock;
type redlock_RedlockAbortSignal = RedlockAbortSignal;
type redlock_RedlockSettings = RedlockSettings;
type redlock_ResourceLockedError = ResourceLockedError;
declare const redlock_ResourceLockedError: typeof ResourceLockedError;
type redlock_Settings = Settings;
declare namespace redlock {
  export { redlock_ExecutionError as ExecutionError, redlock_Lock as Lock, redlock_Redlock as Redlock, redlock_ResourceLockedError as ResourceLockedError, Redlock as default };
  export type { redlock_Client as Client, redlock_ClientExecutionResult as ClientExecutionResult, redlock_ExecutionResult as ExecutionResult, redlock_ExecutionStats as ExecutionStats, redlock_RedlockAbortSignal as RedlockAbortSignal, redlock_RedlockSettings as RedlockSettings, redlock_Settings as Settings };
}

/** The operations of a backend that can fail; waiting for a lock consists of `acquire`. Heartbeats are `extend`. */
type FaultyOperation = "acquire" | "release" | "extend" | "isLocked" | "lookup" | "forceRelease";
/** What happens to one operation. */
type Fault = {
    readonly kind: "error";
    readonly error: LockError;
} | {
    readonly kind: "request lost";
} | {
    readonly kind: "reply lost";
};
/** The locks of the store, as far as faults change them. */
interface FaultTargets {
    steal(key: string, ttlMs: number): {
        lockId: string;
        fence: string;
    };
    expire(key: string): boolean;
    lose(key: string): boolean;
    cameUp(): void;
}
/** Makes the operations of one test backend fail, and takes locks away from their holders. */
declare class Faults {
    #private;
    /** @internal */
    constructor(targets: FaultTargets);
    /**
     * Makes the next `times` operations of that kind fail, without effect on the store.
     *
     * @param error - what they are rejected with; default `ServiceUnavailable`
     * @param times - how many; default 1
     * @throws LockError `InvalidArgument` for an operation or a number that there is not
     * @example
     * ```ts
     * import { createTestBackend } from "syncguard/testing";
     *
     * const backend = createTestBackend();
     * backend.faults.failNext("release", "NetworkTimeout", 2);
     * ```
     */
    failNext(operation: FaultyOperation, error?: LockError | LockErrorCode, times?: number): void;
    /**
     * Loses the next `times` requests of that kind: nothing happens in the store, and the operation ends with `NetworkTimeout`.
     *
     * @param times - how many; default 1
     * @throws LockError `InvalidArgument` for an operation or a number that there is not
     * @example
     * ```ts
     * import { createTestBackend } from "syncguard/testing";
     *
     * const backend = createTestBackend();
     * backend.faults.loseRequest("extend");
     * ```
     */
    loseRequest(operation: FaultyOperation, times?: number): void;
    /**
     * Loses the next `times` replies of that kind: the store does what it is asked, and the operation ends with
     * `NetworkTimeout`. An acquisition is then undone, as on every backend.
     *
     * @param times - how many; default 1
     * @throws LockError `InvalidArgument` for an operation or a number that there is not
     * @example
     * ```ts
     * import { createTestBackend } from "syncguard/testing";
     *
     * const backend = createTestBackend();
     * backend.faults.loseReply("acquire");
     * ```
     */
    loseReply(operation: FaultyOperation, times?: number): void;
    /**
     * Makes each operation, or each of that kind, reach the store `ms` milliseconds later; 0 ends that.
     *
     * @throws LockError `InvalidArgument` for an operation that there is not, or if `ms` is negative or no number
     * @example
     * ```ts
     * import { createTestBackend } from "syncguard/testing";
     *
     * const backend = createTestBackend();
     * backend.faults.delay(200); // a slow network
     * backend.faults.delay(2_000, "release");
     * ```
     */
    delay(ms: number, operation?: FaultyOperation): void;
    /**
     * Makes every operation fail, and waiters hear nothing, until {@link comeUp}.
     *
     * @param error - what operations are rejected with; default `ServiceUnavailable`
     * @example
     * ```ts
     * import { createTestBackend } from "syncguard/testing";
     *
     * const backend = createTestBackend();
     * backend.faults.goDown();
     * await backend.isLocked({ key: "job" }).catch((error) => console.log(error.code));
     * ```
     */
    goDown(error?: LockError | LockErrorCode): void;
    /**
     * Ends {@link goDown}; waiters hear of that.
     *
     * @example
     * ```ts
     * import { createTestBackend } from "syncguard/testing";
     *
     * const backend = createTestBackend();
     * backend.faults.goDown();
     * const waiting = backend.lock("job");
     * backend.faults.comeUp();
     * await using held = await waiting;
     * ```
     */
    comeUp(): void;
    /**
     * Ends all faults; those that have happened stay.
     *
     * @example
     * ```ts
     * import { createTestBackend } from "syncguard/testing";
     *
     * const backend = createTestBackend();
     * backend.faults.delay(200);
     * backend.faults.clear();
     * ```
     */
    clear(): void;
    /**
     * Gives the lock on `key` to another holder, who need not be there: whoever has it hears of that as from a real store, when
     * the lock is extended, by its holder or by a heartbeat.
     *
     * @param ttlMs - milliseconds after which the other's lock ends; default 30000
     * @returns the other's lock id and fence
     * @throws LockError `InvalidArgument` for what is no key or no TTL
     * @example
     * ```ts
     * import { createTestBackend } from "syncguard/testing";
     *
     * const backend = createTestBackend();
     * const held = await backend.lock("job");
     * const other = backend.faults.steal("job");
     * console.log(other.fence > held.fence); // true
     * console.log(await held.extend(30_000)); // { ok: false }
     * ```
     */
    steal(key: string, ttlMs?: number): {
        /** The id of the other's lock, which can release it. */
        lockId: string;
        /** The fencing token of the other's lock. */
        fence: string;
    };
    /**
     * Ends the time of the lock on `key`, as if its holder had been paused; `false` if nobody has it.
     *
     * @throws LockError `InvalidArgument` for what is no key
     * @example
     * ```ts
     * import { createTestBackend } from "syncguard/testing";
     *
     * const backend = createTestBackend();
     * const held = await backend.lock("job");
     * backend.faults.expire("job");
     * console.log(await held.release()); // { ok: false }
     * ```
     */
    expire(key: string): boolean;
    /**
     * Takes the lock on `key` away, and aborts its holder's `signal` at once; `false` if this backend does not hold it.
     *
     * @throws LockError `InvalidArgument` for what is no key
     * @example
     * ```ts
     * import { createTestBackend } from "syncguard/testing";
     *
     * const backend = createTestBackend();
     * const held = await backend.lock("job");
     * backend.faults.lose("job");
     * console.log(held.signal.aborted); // true
     * ```
     */
    lose(key: string): boolean;
    /** @internal */
    static take(faults: Faults, operation: FaultyOperation): Fault | undefined;
    /** @internal */
    static delayOf(faults: Faults, operation: FaultyOperation): number;
    /** @internal */
    static isDown(faults: Faults): boolean;
}
/** The faults of a test backend. */
type TestFaults = Faults;

/** The capabilities of a test backend. */
interface TestCapabilities extends BackendCapabilities {
    /** The store, for those who handle backends of several. */
    backend: "test";
    /** Each acquisition comes with a fencing token. */
    supportsFencing: true;
    /** The clock of the test, or of the process, which all backends of one store share. */
    timeAuthority: "server";
}
/** Options of a test backend. */
interface TestBackendOptions extends CommonBackendOptions {
    /** The clock by which locks end and waiters wait. Default: the process's own, which fake timers may replace. */
    clock?: Clock | undefined;
    /** Another test backend, whose locks this one sees: two backends on one store stand for two processes. */
    sharing?: TestBackend | undefined;
    /** Milliseconds after which an operation without an answer fails with `NetworkTimeout`. Default 5000. */
    operationTimeoutMs?: number | undefined;
}
/** A backend in memory, for tests. */
interface TestBackend extends SyncGuardBackend<TestCapabilities> {
    /** Makes operations fail, and takes locks away. */
    readonly faults: TestFaults;
}
/**
 * A backend in memory that behaves as the others do, for tests of code that uses locks: without native code, without a
 * server, with faults on demand, and on fake timers or a clock of the test's.
 *
 * @throws LockError `InvalidArgument` that names the option
 * @example
 * ```ts
 * import { createTestBackend, TestClock } from "syncguard/testing";
 *
 * const clock = new TestClock();
 * const backend = createTestBackend({ clock });
 * const held = await backend.lock("report:nightly", { autoExtend: true });
 * backend.faults.steal("report:nightly"); // what your code has to survive
 * await clock.advance(10_000); // the next heartbeat finds out
 * console.log(held.signal.aborted); // true
 * ```
 */
declare function createTestBackend(options?: TestBackendOptions): TestBackend;

/**
 * A clock that stands still until it is told to go on. It changes nothing but the backends that are given it.
 *
 * @example
 * ```ts
 * import { createTestBackend, TestClock } from "syncguard/testing";
 *
 * const clock = new TestClock();
 * const backend = createTestBackend({ clock });
 * const held = await backend.lock("report:nightly", { ttlMs: 30_000 });
 * await clock.advance(30_000);
 * console.log(held.signal.aborted); // true: its time is over
 * ```
 */
declare class TestClock implements Clock {
    #private;
    /**
     * A clock that stands at `nowMs`.
     *
     * @param nowMs - where it starts, in whole milliseconds since the Unix epoch; default: the time now
     * @throws LockError `InvalidArgument` for what is no whole number
     */
    constructor(nowMs?: number);
    /**
     * Milliseconds since the Unix epoch.
     *
     * @example
     * ```ts
     * import { TestClock } from "syncguard/testing";
     *
     * const clock = new TestClock(1_000);
     * await clock.advance(500);
     * console.log(clock.now()); // 1500
     * ```
     */
    now(): number;
    /**
     * Milliseconds since the clock was made.
     *
     * @example
     * ```ts
     * import { TestClock } from "syncguard/testing";
     *
     * const clock = new TestClock();
     * await clock.advance(500);
     * console.log(clock.elapsed()); // 500
     * ```
     */
    elapsed(): number;
    /**
     * Goes on by `ms` milliseconds. What is due meanwhile happens in its order, each at its time, and whatever follows from it
     * has happened when the promise resolves.
     *
     * @param ms - a whole number, not negative
     * @throws LockError `InvalidArgument` for any other
     * @example
     * ```ts
     * import { createTestBackend, TestClock } from "syncguard/testing";
     *
     * const clock = new TestClock();
     * const backend = createTestBackend({ clock });
     * await backend.acquire({ key: "report:nightly", ttlMs: 30_000 });
     * await clock.advance(31_000); // a lock counts as held for one more second
     * console.log(await backend.isLocked({ key: "report:nightly" })); // false
     * ```
     */
    advance(ms: number): Promise<void>;
    /**
     * Calls `run` once the clock has gone on by `ms`, in whole milliseconds as those of computers.
     *
     * @example
     * ```ts
     * import { TestClock } from "syncguard/testing";
     *
     * const clock = new TestClock();
     * clock.setTimeout(() => console.log("half a minute later"), 30_000);
     * await clock.advance(30_000);
     * ```
     */
    setTimeout(run: () => void, ms: number): Timer;
    /**
     * Forgets a timer that has not been due yet.
     *
     * @example
     * ```ts
     * import { TestClock } from "syncguard/testing";
     *
     * const clock = new TestClock();
     * const timer = clock.setTimeout(() => console.log("never"), 30_000);
     * clock.clearTimeout(timer);
     * ```
     */
    clearTimeout(timer: Timer | undefined): void;
}

/** `syncguard/testing`: for tests of code that uses locks. Loads no native code. */

type testing_Clock = Clock;
type testing_FaultyOperation = FaultyOperation;
type testing_TestBackend = TestBackend;
type testing_TestBackendOptions = TestBackendOptions;
type testing_TestCapabilities = TestCapabilities;
type testing_TestClock = TestClock;
declare const testing_TestClock: typeof TestClock;
type testing_TestFaults = TestFaults;
type testing_Timer = Timer;
declare const testing_createTestBackend: typeof createTestBackend;
declare namespace testing {
  export { testing_TestClock as TestClock, testing_createTestBackend as createTestBackend };
  export type { testing_Clock as Clock, testing_FaultyOperation as FaultyOperation, testing_TestBackend as TestBackend, testing_TestBackendOptions as TestBackendOptions, testing_TestCapabilities as TestCapabilities, testing_TestFaults as TestFaults, testing_Timer as Timer };
}

/**
 * A page that shows the locks of a store, and what becomes of them.
 *
 * This room knows who may see and change what by a page, and how often a store is looked at for it.
 * It must not know how locks are listed: inspection/ has that, for the command line, too.
 */

/** Options of `createDashboard()`. */
interface DashboardOptions {
    /**
     * Says who may see the locks, and who may change them: the name of whoever sends the request, or `false` to refuse it. Names are
     * told in telemetry. Without it the page is shown on loopback alone, and changes nothing.
     */
    authorize?: ((request: Request, action: "read" | "change") => string | false | Promise<string | false>) | undefined;
    /** Whether the page can force-release locks and mark periods. It needs `authorize`. Default false. */
    allowChanges?: boolean | undefined;
    /** From one look at the store to the next, while somebody watches, in milliseconds. Default 500; on Firestore 10,000. */
    intervalMs?: number | undefined;
}
/** What `createDashboard()` gives: a handler of the Fetch API, for Hono, Next.js, Bun and Deno. */
interface Dashboard {
    /** Answers a request. It needs `authorize`, because a `Request` does not say where it comes from. */
    (request: Request): Promise<Response>;
    /** The same for `node:http`, Express, Fastify and NestJS. */
    readonly node: (request: IncomingMessage, response: ServerResponse, next?: (error: unknown) => void) => void;
    /** Ends the streams of all pages that are open, so that a server can close. Does not close the backend. */
    readonly close: () => void;
}
/**
 * A page that shows the locks of a backend's store, live: docs/dashboard.md. It changes nothing unless `allowChanges` is set.
 *
 * @throws LockError `InvalidArgument` that names the option, or for a backend whose locks cannot be listed
 * @example
 * ```ts
 * import { createServer } from "node:http";
 * import { createDashboard } from "syncguard/dashboard";
 * import { createRedisBackend } from "syncguard/redis";
 *
 * const dashboard = createDashboard(createRedisBackend("redis://localhost:6379"));
 * createServer(dashboard.node).listen(7788, "127.0.0.1");
 * ```
 */
declare function createDashboard(backend: SyncGuardBackend, options?: DashboardOptions): Dashboard;

/** `syncguard/dashboard`: a page that shows the locks of a store as they are now. */

type dashboard_Dashboard = Dashboard;
type dashboard_DashboardOptions = DashboardOptions;
declare const dashboard_createDashboard: typeof createDashboard;
declare namespace dashboard {
  export { dashboard_createDashboard as createDashboard };
  export type { dashboard_Dashboard as Dashboard, dashboard_DashboardOptions as DashboardOptions };
}

/** Options of `instrument()`. */
interface InstrumentOptions {
    /** Where metrics go. Default: the global provider at the time of the call. */
    meterProvider?: MeterProvider | undefined;
    /** Where spans go. Default: the global provider. */
    tracerProvider?: TracerProvider | undefined;
    /** Whether spans have `syncguard.key.hash`: `hashKey(key)`, which helps to recognise a key and does not hide it. Default false. */
    keyHashes?: boolean | undefined;
}
/**
 * A backend that does what `backend` does, and tells OpenTelemetry of it: docs/observability.md lists the metrics and spans.
 * Neither has keys or lock ids, unless `keyHashes` allows hashes on spans.
 *
 * Call it when the providers are there, which an SDK sees to.
 *
 * @throws LockError `InvalidArgument` that names the option
 * @example
 * ```ts
 * import { instrument } from "syncguard/otel";
 * import { createRedisBackend } from "syncguard/redis";
 *
 * const backend = instrument(createRedisBackend("redis://localhost:6379"), { keyHashes: true });
 * ```
 */
declare function instrument<C extends BackendCapabilities>(backend: SyncGuardBackend<C>, options?: InstrumentOptions): SyncGuardBackend<C>;
/**
 * A backend that does what yours does, and tells OpenTelemetry of it: docs/observability.md lists the metrics and spans.
 *
 * @throws LockError `InvalidArgument` that names the option
 * @example
 * ```ts
 * import type { LockBackend, LockBackendLike } from "syncguard";
 * import { instrument } from "syncguard/otel";
 *
 * function observed(mine: LockBackendLike): LockBackend {
 *   return instrument(mine);
 * }
 * ```
 */
declare function instrument<C extends BackendCapabilities>(backend: LockBackendLike<C>, options?: InstrumentOptions): LockBackend<C>;

/** `syncguard/otel`: metrics and spans, for applications with OpenTelemetry. Needs `@opentelemetry/api`. */

type otel_InstrumentOptions = InstrumentOptions;
declare const otel_instrument: typeof instrument;
declare namespace otel {
  export { otel_instrument as instrument };
  export type { otel_InstrumentOptions as InstrumentOptions };
}

export { BACKEND_DEFAULTS, BACKEND_LIMITS, FAILURE_REASON, FENCE_THRESHOLDS, LOCK_DEFAULTS, LockError, MAX_KEY_LENGTH_BYTES, RESERVE_BYTES, TIME_TOLERANCE_MS, acquireHandle, attachRawData, calculateRedisServerTimeMs, checkAborted, createAutoLock, createDisposableHandle, createFirestoreBackend, createPostgresBackend, createRedisBackend, createSqliteBackend, dashboard, decorateAcquireResult, delay, firestore, formatFence, forrst, generateLockId, getById, getByIdRaw, getByKey, getByKeyRaw, hasFence, hashKey, isLive, lead, lock, logFenceWarning, makeStorageKey, mapBackendObservation, mapFirestoreConditions, mapRedisScriptResult, mapToMutationResult, mergeAcquisitionConfig, mergeBackendConfig, normalizeAndValidateKey, once, otel, owns, postgres, redis, redlock, sanitizeLockInfo, setDefaultBackend, sqlite, testing, validateLockId, withTelemetry };
export type { AcquireMethod, AcquireOk, AcquireOptions, AcquireResult, AcquisitionOptions, AcquisitionPolicy, AsyncLock, AutoExtend, AutoExtendOptions, BackendCapabilities, BackendConfig, BackendLockOptions, BackendTransport, BoundLock, Claim, Claims, ClosableLock, CommonBackendOptions, DecoratedAcquireResult, DiagnosticsMessage, DisposableLockHandle, ExtendResult, Fence, FencingCapabilities, FirestoreDone, FirestoreGuard, FirestoreTransaction, GrantedLock, GuardQuery, HashId, HeldLock, HeldLocks, HeldSlot, KeyLookup, KeyOp, LeadOptions, Leadership, LockBackend, LockBackendLike, LockConfig, LockConfigOf, LockErrorCode, LockErrorContext, LockEvent, LockHandle, LockInfo, LockInfoDebug, LockMethod, LockMode, LockOp, LockSet, LocksHandle, LocksOp, LookupOptions, ModeClaim, MutationCondition, MutationReason, MutationResult, OfSlot, OnLeadError, OnLost, OnReleaseError, OnceHandle, OnceMethod, OnceOptions, OnceResult, OwnershipLookup, PostgresDone, PostgresGuard, PostgresTransaction, RawIdentifiers, RawLockData, RedisEvalOptions, RedisGuard, RedisReply, ReleaseAllOptions, ReleaseAllResult, ReleaseResult, SlotClaim, SlotConfig, SlotHandle, StoreMembers, SyncGuardBackend, TelemetryOptions, TryLockMethod, TryLockOptions, TryLockResult };
