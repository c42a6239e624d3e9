/** The native part as the rest of this package uses it: backends, and the core's pure functions. */

import {
  addon,
  type Completions,
  type FirestoreConnection,
  type FirestoreNativeConnection,
  type FirestoreNativeLocks,
  type Handle,
  type NativeCapabilities,
  type PostgresConnection,
  type PostgresNativeConnection,
  type PostgresNativeLocks,
  type RedisConnection,
  type RedisNativeConnection,
  type RedisNativeLocks,
  type SqliteNativeOptions,
} from "./addon.js";
import { LockError, type LockErrorCode } from "./errors.js";
import {
  type Absence,
  type Acquired,
  type Failure,
  ownCompletions,
  type RawRecord,
  run,
  settle,
  withClient,
} from "./operations.js";

/** A script call for a client to carry out. */
export type RedisScriptCall = { script: string; keys: string[]; args: string[] };

/** A statement for a client to carry out: the answer is its only row, the columns in that order, or null. */
export type PostgresStatementCall =
  | { sql: string; params: (string | null)[]; columns: string[] }
  /** Several statements without parameters, as one transaction. */
  | { batch: string };

/** Where the server is, and what gives the password if it is not said there. */
export type PostgresTarget = {
  options: PostgresNativeConnection;
  password?: (() => unknown) | undefined;
};

export type FirestoreRef = { collection: string; id: string };

/** Documents by name, or all whose field has that value. */
export type FirestoreReads =
  { documents: FirestoreRef[] } | { collection: string; field: string; equals: string };

export type FirestoreWrite =
  | { set: FirestoreRef; fields: Record<string, string | number> }
  | { update: FirestoreRef; fields: Record<string, string | number> }
  | { delete: FirestoreRef };

/**
 * A call for a Firestore client to carry out. Reads are answered with the time and the documents. A transaction that
 * `open` started, by a number, waits for `commit` or `rollback`, at most for its limit.
 */
export type FirestoreCall =
  | { read: FirestoreReads }
  | { open: number; read: FirestoreReads; limitMs: number }
  | { commit: number; writes: FirestoreWrite[] }
  | { rollback: number }
  | FirestoreWarning;

/** Several documents carry one lock id. */
export type FirestoreWarning = {
  duplicate: { lockIdHash: string; live: number; expired: number };
};

export type RetryPolicy = {
  maxRetries: number;
  retryDelayMs: number;
  backoff: string;
  jitter: string;
  timeoutMs: number;
};

/**
 * A backend of the addon. It takes arguments that have been checked (`arguments.ts`, `readSignal`). What an operation gives
 * goes through `settle`.
 */
export class NativeBackend {
  readonly capabilities: NativeCapabilities;

  /** JavaScript that the connection asks lives for as long as `connection` does. */
  constructor(
    private readonly handle: Handle,
    protected readonly connection?: PostgresConnection,
  ) {
    this.capabilities = handle.capabilities;
  }

  /** `timeoutMs` ends the attempt before the backend's own limit does. `null`: somebody holds it. */
  acquire(
    key: string,
    ttlMs: number,
    owner: string | undefined,
    timeoutMs: number | undefined,
    signal: AbortSignal | undefined,
  ): Promise<Acquired | null | Failure> {
    return run<Acquired | null>(signal, (operation, cancellable) =>
      this.handle.acquire(operation, cancellable, key, ttlMs, owner, timeoutMs),
    );
  }

  release(lockId: string, signal?: AbortSignal): Promise<true | Absence | Failure> {
    return run<true | Absence>(signal, (operation, cancellable) =>
      this.handle.release(operation, cancellable, lockId),
    );
  }

  /** When it ends now, in milliseconds since the Unix epoch. */
  extend(lockId: string, ttlMs: number, signal?: AbortSignal): Promise<number | Absence | Failure> {
    return run<number | Absence>(signal, (operation, cancellable) =>
      this.handle.extend(operation, cancellable, lockId, ttlMs),
    );
  }

  isLocked(key: string, signal?: AbortSignal): Promise<boolean | Failure> {
    return run<boolean>(signal, (operation, cancellable) =>
      this.handle.isLocked(operation, cancellable, key),
    );
  }

  lookupByKey(key: string, signal?: AbortSignal): Promise<RawRecord | null | Failure> {
    return run<RawRecord | null>(signal, (operation, cancellable) =>
      this.handle.lookupByKey(operation, cancellable, key),
    );
  }

  lookupByLockId(lockId: string, signal?: AbortSignal): Promise<RawRecord | null | Failure> {
    return run<RawRecord | null>(signal, (operation, cancellable) =>
      this.handle.lookupByLockId(operation, cancellable, lockId),
    );
  }

  forceRelease(key: string, signal?: AbortSignal): Promise<boolean | Failure> {
    return run<boolean>(signal, (operation, cancellable) =>
      this.handle.forceRelease(operation, cancellable, key),
    );
  }

  /** Makes what is missing of the tables; PostgreSQL only. */
  async setupSchema(): Promise<void> {
    settle(await run<true>(undefined, (operation) => this.handle.setupSchema(operation)));
  }

  async close(): Promise<void> {
    settle(await run<true>(undefined, (operation) => this.handle.close(operation)));
  }
}

/** What a backend of the addon can do, whoever stands before it. */
export type Native = Pick<NativeBackend, keyof NativeBackend>;

/**
 * Refuses what is no text. Surrogates without their other half become U+FFFD on the way to a store, all of them alike, so that
 * two keys would be one.
 */
function checkText(text: unknown, name: string): asserts text is string {
  if (typeof text !== "string") {
    throw new LockError("InvalidArgument", `${name} must be a string`);
  }
  if (!text.isWellFormed()) {
    throw new LockError("InvalidArgument", `${name} must be well-formed Unicode`);
  }
}

/** Calls the addon and turns what it throws into a LockError. */
function call<T>(run: () => T): T {
  try {
    return run();
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    // Codes of Node-API itself, such as StringExpected, speak of arguments of a wrong type.
    const known = code !== undefined && CODES.has(code);
    throw new LockError(known ? (code as LockErrorCode) : "InvalidArgument", message);
  }
}

const CODES: ReadonlySet<string> = new Set<LockErrorCode>([
  "ServiceUnavailable",
  "AuthFailed",
  "InvalidArgument",
  "RateLimited",
  "NetworkTimeout",
  "AcquisitionTimeout",
  "Aborted",
  "Internal",
]);

/** When to try again: the core's rules, for one acquisition. */
export interface Acquisition {
  /**
   * After an attempt that gave no lock (`failedWith` null: contention): the milliseconds to wait; or, when a failure
   * is to be reported, what to add to its message. Throws `AcquisitionTimeout` when others held the lock for too long.
   */
  after(failedWith: LockErrorCode | null, elapsedMs: number, random: number): number | string;
  /** How long the next attempt may take. */
  attemptTimeoutMs(elapsedMs: number): number;
  /** Whether a failure says less than one before it, which is then to be reported. */
  isCut(failedWith: LockErrorCode, elapsedMs: number): boolean;
}

export const core = {
  ...addon.constants(),

  normalizeAndValidateKey(key: string): string {
    checkText(key, "Key");
    return call(() => addon.normalizeKey(key));
  },
  validateLockId(lockId: string): void {
    if (typeof lockId !== "string") {
      const got = lockId ? typeof lockId : "empty/null";
      throw new LockError(
        "InvalidArgument",
        `Invalid lockId format. Expected 22 base64url characters, got: ${got}`,
      );
    }
    call(() => addon.validateLockId(lockId));
  },
  validateTtl(ttlMs: number): void {
    if (typeof ttlMs !== "number") {
      throw new LockError("InvalidArgument", "ttlMs must be a positive integer");
    }
    call(() => addon.validateTtl(ttlMs));
  },
  validateOwner(owner: string): void {
    checkText(owner, "owner");
    call(() => addon.validateOwner(owner));
  },
  generateLockId: (): string => call(() => addon.generateLockId()),
  hashKey: (value: string): string => call(() => addon.hashKey(value)),
  makeStorageKey(prefix: string, key: string, limitBytes: number, reserveBytes: number): string {
    checkText(prefix, "Prefix");
    checkText(key, "Key");
    return call(() => addon.makeStorageKey(prefix, key, limitBytes, reserveBytes));
  },
  formatFence: (decimal: string): string => call(() => addon.formatFence(decimal)),
  isFenceNearLimit: (fence: string): boolean => call(() => addon.isFenceNearLimit(fence)),
  isLive: (expiresAtMs: number, nowMs: number, toleranceMs: number): boolean =>
    call(() => addon.isLive(expiresAtMs, nowMs, toleranceMs)),
  redisServerTimeMs: (seconds: number, microseconds: number): number =>
    call(() => addon.redisServerTimeMs(seconds, microseconds)),

  createAcquisition(policy: RetryPolicy): Acquisition {
    const { maxRetries, retryDelayMs, backoff, jitter, timeoutMs } = policy;
    const rules = call(
      () => new addon.Acquisition(maxRetries, retryDelayMs, backoff, jitter, timeoutMs),
    );
    return {
      after: (failedWith, elapsedMs, random) =>
        call(() => rules.after(failedWith, elapsedMs, random)),
      attemptTimeoutMs: (elapsedMs) => rules.attemptTimeoutMs(elapsedMs),
      isCut: (failedWith, elapsedMs) => rules.isCut(failedWith, elapsedMs),
    };
  },

  createSqliteBackend: (options: SqliteNativeOptions): NativeBackend =>
    open((source) => addon.NativeBackend.sqlite(source, options)),

  createRedisConnection: (options: RedisNativeConnection): RedisConnection =>
    call(() => new addon.RedisConnection(options)),

  createRedisBackend: (connection: RedisConnection, locks: RedisNativeLocks): NativeBackend =>
    open((source) => addon.NativeBackend.redis(source, connection, locks)),

  /** Every script goes through `run`: a client of the user's. */
  createRedisClientBackend: (
    run: (call: RedisScriptCall) => Promise<unknown>,
    locks: RedisNativeLocks,
  ): NativeBackend =>
    withClient(run, (client) =>
      open((source) => addon.NativeBackend.redisOverClient(source, client, locks)),
    ),

  /** `password` is asked for at each connection that is opened. */
  createPostgresConnection: ({ options, password }: PostgresTarget): PostgresConnection => {
    const connect = (passwordClient?: number): PostgresConnection => {
      const all = passwordClient === undefined ? options : { ...options, passwordClient };
      return call(() => new addon.PostgresConnection(ownCompletions(), all));
    };
    return password === undefined ? connect() : withClient(async () => await password(), connect);
  },

  createPostgresBackend: (
    connection: PostgresConnection,
    locks: PostgresNativeLocks,
  ): NativeBackend =>
    open((source) => addon.NativeBackend.postgres(source, connection, locks), connection),

  /** Every statement goes through `run`: a client of the user's. */
  createPostgresClientBackend: (
    run: (call: PostgresStatementCall) => Promise<unknown>,
    locks: PostgresNativeLocks,
  ): NativeBackend =>
    withClient(run, (client) =>
      open((source) => addon.NativeBackend.postgresOverClient(source, client, locks)),
    ),

  createFirestoreConnection: (options: FirestoreNativeConnection): FirestoreConnection =>
    call(() => new addon.FirestoreConnection(options)),

  /** `warn` hears of what no correct client does. */
  createFirestoreBackend: (
    connection: FirestoreConnection,
    locks: FirestoreNativeLocks,
    warn: (warning: FirestoreWarning) => Promise<unknown>,
  ): NativeBackend =>
    withClient(warn, (client) =>
      open((source) => addon.NativeBackend.firestore(source, connection, locks, client)),
    ),

  /** Every transaction and every read goes through `run`: a client of the user's. */
  createFirestoreClientBackend: (
    run: (call: FirestoreCall) => Promise<unknown>,
    locks: FirestoreNativeLocks,
  ): NativeBackend =>
    withClient(run, (client) =>
      open((source) => addon.NativeBackend.firestoreOverClient(source, client, locks)),
    ),
};

function open(
  create: (source: Completions) => Handle,
  connection?: PostgresConnection,
): NativeBackend {
  return call(() => new NativeBackend(create(ownCompletions()), connection));
}
