/** The native addon: what it exports. */

import { loadAddon } from "./loader.js";
import type { Roots } from "./node-trust.js";

export type NativeCapabilities = {
  backend: string;
  supportsFencing: boolean;
  timeAuthority: "server" | "client";
};

export type SqliteNativeOptions = {
  /** Absent for a database in memory. */
  path?: string;
  cleanupInIsLocked?: boolean;
  operationTimeoutMs?: number;
  allowNetworkFileSystem?: boolean;
};

/** How locks are kept in Redis, whoever carries them there. */
export type RedisNativeLocks = {
  keyPrefix?: string;
  cleanupInIsLocked?: boolean;
  operationTimeoutMs?: number;
};

/** Where a Redis server is. What stands beside a URL overrides it. */
export type RedisNativeConnection = {
  url?: string;
  host?: string;
  port?: number;
  path?: string;
  db?: number;
  username?: string;
  password?: string;
  /** Certificates and keys as PEM. */
  tls?: {
    ca?: string;
    /** Whom to trust without `ca`. */
    defaultRoots?: Roots;
    cert?: string;
    key?: string;
    servername?: string;
    rejectUnauthorized?: boolean;
  };
  sentinels?: { host: string; port?: number }[];
  name?: string;
  sentinelUsername?: string;
  sentinelPassword?: string;
  connectionName?: string;
  /** Stands before every key that is sent, as ioredis' own keyPrefix does. */
  clientKeyPrefix?: string;
  connectTimeoutMs?: number;
  operationTimeoutMs?: number;
};

/** What locks in PostgreSQL are like, whoever talks to the server. */
export type PostgresNativeLocks = {
  tableName?: string;
  fenceTableName?: string;
  cleanupInIsLocked?: boolean;
  operationTimeoutMs?: number;
  /** Whether a release waits for the server's disk. */
  durableReleases?: boolean;
  createsTables?: boolean;
};

/** Where a PostgreSQL server is. What stands beside a URL overrides it; what is not said is taken from PG* variables. */
export type PostgresNativeConnection = {
  /** `false`: the variables do not count. */
  environment?: boolean;
  url?: string;
  /** Names, addresses, or folders of unix sockets. */
  hosts?: { host: string; port?: number }[];
  database?: string;
  user?: string;
  password?: string;
  /** Certificates and keys as PEM; `mode` as libpq's sslmode. */
  tls?: {
    mode?: string;
    ca?: string;
    /** Whom to trust without `ca`. */
    defaultRoots?: Roots;
    cert?: string;
    key?: string;
    servername?: string;
  };
  applicationName?: string;
  options?: string;
  parameters?: { name: string; value: string }[];
  targetSessionAttrs?: string;
  poolSize?: number;
  connectTimeoutMs?: number;
  /** How long a statement may take. */
  operationTimeoutMs?: number;
  prepare?: boolean;
};

/** How locks are kept in Firestore, whoever carries them there. */
export type FirestoreNativeLocks = {
  collection?: string;
  fenceCollection?: string;
  cleanupInIsLocked?: boolean;
  operationTimeoutMs?: number;
};

/** Which Firestore database, and who we are to it. What is not said is taken from the environment. */
export type FirestoreNativeConnection = {
  projectId?: string;
  databaseId?: string;
  /** The JSON of a key file. */
  credentials?: string;
  keyFilename?: string;
  /** Another server than Google's: `host` or `host:port`. */
  host?: string;
  /** Whether that server speaks TLS; it does if this is not said. */
  ssl?: boolean;
  emulatorHost?: string;
  /** Whom to trust. */
  defaultRoots?: Roots;
};

/** A connection for several backends; it is made when it is needed. */
export interface RedisConnection {
  readonly [Symbol.toStringTag]?: "RedisConnection";
}

/** The same for PostgreSQL. */
export interface PostgresConnection {
  readonly [Symbol.toStringTag]?: "PostgresConnection";
}

/** The same for Firestore. */
export interface FirestoreConnection {
  readonly [Symbol.toStringTag]?: "FirestoreConnection";
}

/** The addon's exports, as `crates/syncguard-node` defines them. */
export interface Addon {
  /** The core's; `functions.test.ts` holds these types against the values. */
  constants(): {
    timeToleranceMs: 1000;
    maxKeyLengthBytes: 512;
    fenceMax: "900000000000000";
    fenceWarn: "090000000000000";
    defaultTtlMs: 30_000;
  };
  normalizeKey(key: string): string;
  validateLockId(lockId: string): void;
  validateTtl(ttlMs: number): void;
  validateOwner(owner: string): void;
  generateLockId(): string;
  hashKey(text: string): string;
  makeStorageKey(prefix: string, key: string, limitBytes: number, reserveBytes: number): string;
  formatFence(decimal: string): string;
  isFenceNearLimit(fence: string): boolean;
  isLive(expiresAtMs: number, nowMs: number, toleranceMs: number): boolean;
  redisServerTimeMs(seconds: number, microseconds: number): number;
  Completions: new (onReady: () => void, numbers: Float64Array) => Completions;
  Acquisition: new (
    maxRetries: number,
    retryDelayMs: number,
    backoff: string,
    jitter: string,
    timeoutMs: number,
  ) => {
    after(failedWith: string | null, elapsedMs: number, random: number): number | string;
    attemptTimeoutMs(elapsedMs: number): number;
    isCut(failedWith: string, elapsedMs: number): boolean;
  };
  FirestoreConnection: new (options: FirestoreNativeConnection) => FirestoreConnection;
  forrstConstants(): {
    urn: string;
    release: string;
    forceRelease: string;
    status: string;
    retryable: string[];
    codes: string[];
  };
  ForrstOptions: new (functionName: string, json: string) => ForrstNativeOptions;
  forrstKeyArgument(json: string): string;
  forrstReleaseArguments(json: string): { key: string; owner: string };
  forrstOwns(stored: string | undefined, claimed: string): boolean;
  forrstReleaseResult(key: string, absent: string | undefined): string;
  forrstForceReleaseResult(key: string, released: boolean): string;
  forrstStatusFree(key: string): string;
  forrstStatusHeld(
    key: string,
    owner: string | undefined,
    acquiredAtMs: number,
    expiresAtMs: number,
    readAtMs: number,
  ): string;
  forrstMismatch(key: string): never;
  forrstNotFound(key: string): never;
  forrstForbidden(key: string): never;
  forrstInvalidRequest(field: string, what: string): never;
  RedisConnection: new (options: RedisNativeConnection) => RedisConnection;
  PostgresConnection: new (
    completions: Completions,
    options: PostgresNativeConnection & { passwordClient?: number },
  ) => PostgresConnection;
  NativeBackend: {
    sqlite(completions: Completions, options: SqliteNativeOptions): Handle;
    redis(completions: Completions, connection: RedisConnection, locks: RedisNativeLocks): Handle;
    redisOverClient(completions: Completions, client: number, locks: RedisNativeLocks): Handle;
    postgres(
      completions: Completions,
      connection: PostgresConnection,
      locks: PostgresNativeLocks,
    ): Handle;
    postgresOverClient(
      completions: Completions,
      client: number,
      locks: PostgresNativeLocks,
    ): Handle;
    firestore(
      completions: Completions,
      connection: FirestoreConnection,
      locks: FirestoreNativeLocks,
      warn: number,
    ): Handle;
    firestoreOverClient(
      completions: Completions,
      client: number,
      locks: FirestoreNativeLocks,
    ): Handle;
  };
}

/** The Forrst extension's options in one request. Answers are JSON. */
export interface ForrstNativeOptions {
  readonly fullKey: string;
  readonly ttlMs: number;
  readonly owner: string;
  readonly autoRelease: boolean;
  readonly waiting: {
    maxRetries: number;
    retryDelayMs: number;
    backoff: "exponential" | "fixed";
    jitter: "equal" | "full" | "none";
    timeoutMs: number;
  };
  acquired(expiresAtMs: number, lost: boolean): string;
  contention(): never;
  refusedData(): string;
}

export interface Completions {
  drain(): string;
  handOver(): void;
  cancel(operation: number): void;
  answer(question: number, json: string): void;
  reject(question: number, name: string, code: string | undefined, message: string): void;
}

export interface Handle {
  readonly capabilities: NativeCapabilities;
  acquire(
    operation: number,
    cancellable: boolean,
    key: string,
    ttlMs: number,
    owner: string | undefined,
    timeoutMs: number | undefined,
  ): boolean;
  release(operation: number, cancellable: boolean, lockId: string): boolean;
  extend(operation: number, cancellable: boolean, lockId: string, ttlMs: number): boolean;
  isLocked(operation: number, cancellable: boolean, key: string): boolean;
  lookupByKey(operation: number, cancellable: boolean, key: string): boolean;
  lookupByLockId(operation: number, cancellable: boolean, lockId: string): boolean;
  forceRelease(operation: number, cancellable: boolean, key: string): boolean;
  close(operation: number): boolean;
  setupSchema(operation: number): boolean;
}

export const addon = loadAddon() as Addon;
