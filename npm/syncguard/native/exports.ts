/** What the addon exports, made by `npm run build` from crates/syncguard-node: do not edit. */

/** What an acquisition can ask for besides its key and its TTL. */
export interface AcquireOptions {
  /** Several keys, or slots, in place of the one key. */
  claims?: Array<ClaimSettings>;
  /** What to store with the lock in place of what is stored by default: labels by their names. */
  labels?: Record<string, string | undefined | null>;
  /** The period for which something is to be done: the lock is granted only if that was not done yet. */
  due?: string;
  /** How to wait: see `policy.rs`. Without it, the store is asked once. */
  waiting?: Float64Array;
  /** How the lock extends itself from the moment it is granted, whatever JavaScript does meanwhile. */
  hold?: HoldSettings;
}

export interface Capabilities {
  backend: string;
  supportsFencing: boolean;
  timeAuthority: TimeAuthority;
}

/** What the error of such a statement says of the locks. */
export interface CheckFailure {
  code: string;
  message: string;
}

/** What is asked of one key. */
export interface ClaimSettings {
  key: string;
  /** `shared` for the key together with all others who share it; absent for the key alone. */
  mode?: "shared";
  /** Any slot of so many; absent for the key itself. */
  slots?: number;
  /** How many slots. */
  take?: number;
}

/** The operations of one environment, as JavaScript sees them. */
export declare class Completions {
  #native;

  /** `on_ready` is called when finished operations wait to be drained. */
  constructor(onReady: () => void);
  /**
   * A function that writes finished operations into an array, the count first, and returns their texts, one
   * after the other. What does not fit stays for the next call.
   */
  drain(): (arg0: Float64Array) => string;
  /** Cancels an operation if it has not finished. */
  cancel(operation: number): void;
  /** Brings a client's answer, in JSON, to the operation that asked for it. */
  answer(question: number, json: string): void;
  /** Brings what a client's promise was rejected with to the operation that asked. */
  reject(question: number, name: string, code: string | undefined | null, message: string): void;
  /**
   * A function that tells why the lock of that number is lost, if it is at this moment, whether or not JavaScript has been told: JSON
   * with which of several it is, or null, then the code, the message, and those of the causes. Nothing is asked of the store.
   */
  look(): (arg0: number) => string | null;
  /** JavaScript has been told that the lock of that number is lost. */
  removeHolder(number: number): void;
  /** Sends no more heartbeats for a lock: it ends by itself, and nobody is told of it. */
  forgetHolder(number: number): void;
}

/**
 * The core's constants for TypeScript. The build writes the values of `constants` into `native/constants.ts`, so that
 * they are there without a call.
 */
export interface Constants {
  version: string;
  timeToleranceMs: number;
  maxKeyLengthBytes: number;
  lockIdLength: number;
  maxClaims: number;
  maxSlots: number;
  fenceDigits: number;
  fenceMax: string;
  fenceWarn: string;
  defaultTtlMs: number;
  maxTtlMs: number;
  /** The labels that can be stored with a lock. */
  labelNames: Array<string>;
  maxLabelBytes: number;
  maxDueLength: number;
  maxDueDigits: number;
  /** How `lock()` waits by default. */
  retry: RetryPolicy;
  /** The longest wait of `backend.lock()` between two attempts, by default. */
  maxRetryDelayMs: number;
  storageKeys: StorageKeys;
  /** The codes of errors. */
  errorCodes: Array<string>;
  /** How many numbers `Completions` writes for each finished operation. */
  completionWidth: number;
}

/** A connection that is made when it is needed, and closed with the last backend that uses it. */
export declare class FirestoreConnection {
  #native;

  constructor(options: FirestoreSettings);
}

/** How locks are kept, whatever the transport. */
export interface FirestoreLockOptions {
  collection?: string;
  fenceCollection?: string;
  cleanupInIsLocked?: boolean;
  ignoreClockSkew?: boolean;
  operationTimeoutMs?: number;
}

/** Which database to use, and how to authenticate. Missing settings are taken from the environment. */
export interface FirestoreSettings {
  projectId?: string;
  databaseId?: string;
  /** The JSON of a key file. */
  credentials?: string;
  keyFilename?: string;
  /** A server other than Google's: `host` or `host:port`. */
  host?: string;
  /** Whether that server speaks TLS. Default: true. */
  ssl?: boolean;
  emulatorHost?: string;
  /** Which authorities to trust. */
  defaultRoots?: Roots;
}

/** What the functions need to know about a lock that somebody holds. */
export interface ForrstFound {
  owner?: string;
  acquiredAtMs: number;
  expiresAtMs: number;
  readAtMs: number;
}

/** The extension's options in one request. `acquired` gives JSON. */
export declare class ForrstOptions {
  #native;

  constructor(function_: string, json: string);
  get fullKey(): string;
  get ttlMs(): number;
  get owner(): string;
  /** What is stored as the lock's owner. */
  get label(): string;
  get autoRelease(): boolean;
  get waiting(): ForrstWaiting;
  acquired(expiresAtMs: number, lost: boolean): string;
  /** Throws the error for a lock that others kept. */
  contention(): never;
}

/**
 * A call of the release function.
 *
 * `start` does all of it on the I/O thread, and `answer` then gives the result. If JavaScript has wrapped the
 * backend, for example for telemetry, the wrapper has to see each step. Then JavaScript does the steps:
 * `check_owner` checks what the lookup has found, and `released` gives the result of the release. Either way, the
 * same functions of the core decide.
 */
export declare class ForrstRelease {
  #native;

  constructor(arguments_: string);
  get key(): string;
  /** Starts an operation like those of [`NativeBackend`]. It fails only if the store fails: a refusal is in `answer`. */
  start(backend: NativeBackend, operation: number, cancellable: boolean): void;
  /** The result, once the operation has ended. Throws the error to answer with if nothing was released. */
  answer(): string;
  /** Throws the error to answer with if the caller may not release the lock that was found. */
  checkOwner(found?: ForrstFound | undefined | null): void;
  /** The result of the release. If there was nothing to release, `absent` says why. */
  released(absent?: string | undefined | null): string;
}

export interface ForrstUrns {
  urn: string;
  release: string;
  forceRelease: string;
  status: string;
}

export interface ForrstWaiting {
  maxRetries: number;
  retryDelayMs: number;
  backoff: string;
  jitter: string;
  timeoutMs: number;
}

/** How a lock extends itself. Times are in milliseconds. */
export interface HoldSettings {
  /** Tells what becomes of this lock from what becomes of others. */
  number: number;
  everyMs: number;
  maxMs?: number;
  /** No heartbeats are sent once JavaScript has not turned its event loop for so long. */
  maxStallMs?: number;
}

/** A statement for a transaction of the user's own. */
export interface LockCheck {
  /** With `$1` … for the values. */
  text: string;
  /** All of them texts. */
  values: Array<string>;
}

/** Where a lock is in Firestore, and what is done under it. */
export interface LockPlace {
  collection: string;
  id: string;
  markCollection: string;
  markId: string;
  /** The id of the lock of all who share the key, if it is that of one of them. */
  groupId?: string;
}

export declare class NativeBackend {
  #native;

  /**
   * What checks that the locks are held whose ids are given; of one, on `key`, it may store that something is done for the period
   * `due`.
   */
  check(
    ids: Array<string>,
    key?: string | undefined | null,
    due?: string | undefined | null,
  ): LockCheck;
  /** A backend on `connection`. */
  static postgres(
    completions: Completions,
    connection: PostgresConnection,
    options: PostgresLockOptions,
  ): NativeBackend;
  /** A backend over the client object with JavaScript's number `client`. */
  static postgresOverClient(
    completions: Completions,
    client: number,
    options: PostgresLockOptions,
  ): NativeBackend;
  /** Creates the tables that are missing. Only for PostgreSQL. */
  setupSchema(operation: number): void;
  /** A backend on `connection`. */
  static redis(
    completions: Completions,
    connection: RedisConnection,
    options: RedisLockOptions,
  ): NativeBackend;
  /** A backend over the client object with JavaScript's number `client`. */
  static redisOverClient(
    completions: Completions,
    client: number,
    traits: RedisClientTraits,
    options: RedisLockOptions,
  ): NativeBackend;
  /** A backend on `connection`. `warn` is JavaScript's number for the client object that gets warnings. */
  static firestore(
    completions: Completions,
    connection: FirestoreConnection,
    options: FirestoreLockOptions,
    warn: number,
  ): NativeBackend;
  /** A backend over the client object with JavaScript's number `client`, which also gets warnings. */
  static firestoreOverClient(
    completions: Completions,
    client: number,
    options: FirestoreLockOptions,
  ): NativeBackend;
  get capabilities(): Capabilities;
  /**
   * A function, and not a method, because it is called for every lock: what napi-rs does for the receiver of
   * a method costs more than the call itself. Its arguments are the operation's number, whether it can be
   * cancelled, the key, the TTL in milliseconds, and what else is asked for.
   */
  acquire(): (
    arg0: number,
    arg1: boolean,
    arg2: string,
    arg3: number,
    arg4?: AcquireOptions | undefined | null,
  ) => void;
  /** Lets all who wait for a lock of this backend fail, and those who come later. */
  refuseWaiters(): void;
  /** Calls JavaScript's client of that number whenever another server may keep the locks from now on. Only the first one counts. */
  whenAnotherServer(client: number): void;
  /** The user's client has lost a connection, or has one again. */
  clientIsConnected(isConnected: boolean): void;
  /**
   * A function for the reason of [`acquire`](Self::acquire). Its arguments are the operation's number,
   * whether it can be cancelled, the lock id, for how many milliseconds the lock can last (so long a release that has failed goes
   * on in the background), and the key as it was granted, for those of this process who wait for it.
   */
  release(): (
    arg0: number,
    arg1: boolean,
    arg2: string,
    arg3?: number | undefined | null,
    arg4?: string | undefined | null,
  ) => void;
  /** Releases locks: several, or such as are to be held for longer. */
  releaseSet(
    operation: number,
    cancellable: boolean,
    ids: Array<string>,
    how: ReleaseSettings,
  ): void;
  /**
   * Sends no more heartbeats for these locks, which somebody releases through another backend. Others that were granted together
   * with them go on.
   */
  stopHeartbeats(ids: Array<string>): void;
  /**
   * Releases the lock on `key`, and stores in the same step that something is done for a period. `lasts_ms` is as for a
   * release.
   */
  finish(
    operation: number,
    cancellable: boolean,
    lockId: string,
    lastsMs: number | undefined | null,
    key: string,
    due: string,
  ): void;
  /**
   * For which period of the key something was done last, as a text with JSON. What is stored becomes `due`, or nothing if
   * that is empty.
   */
  mark(operation: number, cancellable: boolean, key: string, due?: string | undefined | null): void;
  extend(operation: number, cancellable: boolean, ids: Array<string>, ttlMs: number): void;
  isLocked(operation: number, cancellable: boolean, key: string): void;
  lookupByKey(operation: number, cancellable: boolean, key: string): void;
  lookupByLockId(operation: number, cancellable: boolean, lockId: string): void;
  forceRelease(operation: number, cancellable: boolean, key: string): void;
  /** Some of the live locks, from after a cursor on: a text with the JSON of a page. */
  list(
    operation: number,
    cancellable: boolean,
    after: string | undefined | null,
    limit: number,
  ): void;
  /** How the store is set up: a text with the JSON of facts by name, for each node. */
  facts(operation: number, cancellable: boolean): void;
  /** Runs a script only if locks are held: a text with the JSON of its reply. */
  eval(operation: number, cancellable: boolean, script: ScriptSettings): void;
  close(operation: number): void;
  /** Watches the lock on `key`; nothing if the store cannot tell. */
  watch(key: string): NativeWatch | null;
  static sqlite(completions: Completions, options: SqliteOptions): NativeBackend;
}

/** Tells when the lock on one key may have been freed, for as long as it lives. */
export declare class NativeWatch {
  #native;

  /** An operation that ends when the lock may have been freed since the last one did, or when it is cancelled. */
  freed(operation: number): void;
}

/** Connections that are made when they are needed, and closed with the last backend that uses them. */
export declare class PostgresConnection {
  #native;

  /** `completions` is used to ask JavaScript for passwords, if a function gives them. */
  constructor(completions: Completions, options: PostgresSettings);
}

export interface PostgresHost {
  /** A name, an address, or the folder of a unix socket. */
  host: string;
  port?: number;
}

/** How locks are kept, whatever the transport. */
export interface PostgresLockOptions {
  tableName?: string;
  fenceTableName?: string;
  cleanupInIsLocked?: boolean;
  operationTimeoutMs?: number;
  durableReleases?: boolean;
  /** Whether missing tables are created at their first use. */
  createsTables?: boolean;
}

export interface PostgresParameter {
  name: string;
  value: string;
}

/** Where the server is. Settings given besides a URL override it; missing ones are taken from the PG* variables. */
export interface PostgresSettings {
  /** Whether to use the variables if there is no URL. Default: true. */
  environment?: boolean;
  url?: string;
  hosts?: Array<PostgresHost>;
  database?: string;
  user?: string;
  password?: string;
  /** JavaScript's number for what gives the current login, in place of that here. */
  loginClient?: number;
  /** Whether nobody can log in before JavaScript was asked. */
  needsLogin?: boolean;
  tls?: PostgresTlsSettings;
  applicationName?: string;
  options?: string;
  parameters?: Array<PostgresParameter>;
  /** `any` or `read-write`. */
  targetSessionAttrs?: string;
  poolSize?: number;
  connectTimeoutMs?: number;
  /** How long a statement may take. */
  operationTimeoutMs?: number;
  prepare?: boolean;
}

export interface PostgresTlsSettings {
  /** `disable` … `verify-full`. */
  mode?: string;
  /** PEM. */
  ca?: string;
  /** Which authorities to trust without `ca`. */
  defaultRoots?: Roots;
  /** PEM. */
  cert?: string;
  /** PEM. */
  key?: string;
  servername?: string;
}

/** What is known about a client. */
export interface RedisClientTraits {
  /** Whether it leads to a cluster. */
  isCluster: boolean;
  /** What it puts before every key, if that is known. */
  keyPrefix?: string;
}

/** A connection that is made when it is needed, and closed with the last backend that uses it. */
export declare class RedisConnection {
  #native;

  /**
   * It lives on JavaScript's event loop, where that is possible. `completions` is also used to ask JavaScript for the
   * login, if it may change.
   */
  constructor(completions: Completions, options: RedisSettings);
}

/** How locks are kept, whatever the transport. */
export interface RedisLockOptions {
  keyPrefix?: string;
  cleanupInIsLocked?: boolean;
  operationTimeoutMs?: number;
  /** How many replicas must have a lock. */
  replicas?: number;
  /** After which time without an acquisition a fence counter goes. */
  fenceTtlMs?: number;
}

export interface RedisNode {
  host: string;
  port?: number;
}

/** Where the server is. Settings given besides a URL override it. */
export interface RedisSettings {
  url?: string;
  host?: string;
  port?: number;
  path?: string;
  db?: number;
  username?: string;
  password?: string;
  /** JavaScript's number for what gives the current login, in place of that here. */
  loginClient?: number;
  /** Whether nobody can log in before JavaScript was asked. */
  needsLogin?: boolean;
  tls?: TlsSettings;
  /** Some nodes of a cluster: addresses, URLs, or hosts and ports. */
  nodes?: Array<string | RedisNode>;
  /** Where the nodes of a cluster are, by the `host:port` that they announce. */
  natMap?: Record<string, RedisNode>;
  sentinels?: Array<RedisNode>;
  /** The name that the Sentinels use for the primary. */
  name?: string;
  sentinelUsername?: string;
  sentinelPassword?: string;
  /** JavaScript's number for what is told of a primary that few Sentinels named. */
  fewSentinelsClient?: number;
  connectionName?: string;
  /** ioredis' own prefix of keys. */
  clientKeyPrefix?: string;
  connectTimeoutMs?: number;
  /** After which time a call counts as lost. */
  operationTimeoutMs?: number;
}

/** How locks are released. */
export interface ReleaseSettings {
  /** For how many milliseconds they can last: so long a release that has failed goes on in the background. */
  lastsMs?: number;
  /** For how many milliseconds they are to be held still: a release that is sent before that lets them end then. */
  holdMs?: number;
  /** Their keys, as they were granted, as far as some of this process wait for them. */
  keys: Array<string>;
}

/** How long and how often to try. Times in milliseconds. */
export interface RetryPolicy {
  maxRetries: number;
  retryDelayMs: number;
  timeoutMs: number;
  backoff: string;
  jitter: string;
}

/** The authorities that Node trusts, if they are not just Mozilla's list. */
export interface Roots {
  /** PEM certificates, one after the other. */
  pem: string;
  /** Whether to trust Mozilla's list as well. */
  withMozilla: boolean;
}

/** A script, and the locks that must be held. */
export interface ScriptSettings {
  lockIds: Array<string>;
  /** The key of each, as it was granted. */
  locks: Array<string>;
  script: string;
  keys: Array<string>;
  arguments: Array<string>;
}

export interface SqliteOptions {
  /** Absent for a database in memory. */
  path?: string;
  cleanupInIsLocked?: boolean;
  operationTimeoutMs?: number;
  allowNetworkFileSystem?: boolean;
}

export interface StorageKeyLimits {
  /** The longest name that the store accepts, in bytes. */
  limitBytes: number;
  /** How many bytes of that are reserved for derived names. */
  reserveBytes: number;
}

export interface StorageKeys {
  redis: StorageKeyLimits;
  postgres: StorageKeyLimits;
  firestore: StorageKeyLimits;
}

/** How outcomes are numbered in a batch. */
export const enum Tag {
  Acquired = 0,
  /** Several locks: JSON. */
  AcquiredAll = 1,
  Locked = 2,
  Done = 3,
  /** JSON. */
  Released = 4,
  Extended = 5,
  Expired = 6,
  NotFound = 7,
  Yes = 8,
  No = 9,
  Found = 10,
  Nothing = 11,
  Text = 12,
  Failed = 13,
  /** Not an outcome: a lock that extends itself ends later now. */
  Held = 14,
  /** Not an outcome: a lock that extends itself is lost. */
  Lost = 15,
  /** Not an outcome: a question to a client. */
  Ask = 16,
}

/** Whose clock decides when a lock ends. */
export type TimeAuthority = "server" | "client";

/** TLS settings as for Node's `tls.connect()`. */
export interface TlsSettings {
  /** PEM. */
  ca?: string;
  /** Which authorities to trust without `ca`. */
  defaultRoots?: Roots;
  /** PEM. */
  cert?: string;
  /** PEM. */
  key?: string;
  servername?: string;
  rejectUnauthorized?: boolean;
}

/** Reads it in the SQLSTATE and the message of the error; nothing if that is about something else. */
export declare function checkFailure(state: string, message: string): CheckFailure | null;

export declare function constants(): Constants;

/**
 * The fields of the document, in JSON, that says that something is done under the lock of that id for the period `due` of `key`;
 * nothing if what is there, in JSON, says that a later one is.
 */
export declare function firestoreDone(
  fields: string,
  key: string,
  due: string,
  lockId: string,
  nowMs: number,
): string | null;

/** Whether the lock document with these fields, in JSON, is the lock of that id, and is live at that time. */
export declare function firestoreHolds(fields: string, lockId: string, nowMs: number): boolean;

/** Where the lock on `key`, as it was granted, is in Firestore, in the collections of the backend. */
export declare function firestoreLock(
  collection: string | undefined | null,
  fenceCollection: string | undefined | null,
  key: string,
): LockPlace;

/**
 * Whether the lock documents with these fields, in JSON, are that of one who shares a key, and that of all who do, which has this id
 * and is live at that time.
 */
export declare function firestoreShares(
  fields: string,
  groupId: string,
  group: string,
  nowMs: number,
): boolean;

/** Throws the error for a forced release that is not allowed. */
export declare function forrstForbidden(key: string): never;

export declare function forrstForceReleaseResult(key: string, released: boolean): string;

/** Throws the error for a malformed request. */
export declare function forrstInvalidRequest(field: string, what: string): never;

/** Checks the arguments of a function that takes only a key. Gives the key. */
export declare function forrstKeyArgument(arguments_: string): string;

export declare function forrstStatusResult(
  key: string,
  found?: ForrstFound | undefined | null,
): string;

export declare function forrstUrns(): ForrstUrns;

export declare function isLive(expiresAtMs: number, nowMs: number, toleranceMs: number): boolean;

export declare function makeStorageKey(
  prefix: string,
  key: string,
  limitBytes: number,
  reserveBytes: number,
): string;

/** The statements that create the tables in PostgreSQL. */
export declare function postgresSchemaSql(
  tableName?: string | undefined | null,
  fenceTableName?: string | undefined | null,
): string;

export declare function redisServerTimeMs(seconds: number, microseconds: number): number;

/** Whether anybody can still read what is written to stdout. Node.js finds out only when it writes. */
export declare function stdoutHasReader(): boolean;

/** What is to be run in the transaction after a guard that failed, so that it cannot be committed. */
export declare function stopTransaction(): string;
