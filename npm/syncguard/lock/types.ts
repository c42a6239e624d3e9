// For `await using`. Node's types bring it along; who has others would have to name it in `lib`.
/// <reference lib="esnext.disposable" preserve="true" />

// One long file, because the types refer to one another, and most of it is what editors show of them.

import type { LockError, LockErrorCode } from "../native/errors.js";
import type { LockLabels, StoredLabels } from "../native/outcome.js";

/** A fencing token: 15 decimal digits, zero-padded, so that comparing strings compares numbers. */
export type Fence = string;

/** 24 lower-case hexadecimal digits by which a key or a lock id can be recognised. Not secure: see `hashKey`. */
export type HashId = string;

/** What a backend can do. */
export interface BackendCapabilities {
  /** Whether each acquisition comes with a fencing token. */
  supportsFencing: boolean;
  /** Whose clock decides when a lock ends. */
  timeAuthority: "server" | "client";
}

/** The capabilities of a backend with fencing tokens. */
export interface FencingCapabilities extends BackendCapabilities {
  /** Each acquisition comes with a fencing token. */
  supportsFencing: true;
}

/** Names a lock by its key. */
export type KeyOp = Readonly<{
  /** Names what the lock protects: at most 512 bytes of UTF-8 after NFC normalisation. */
  key: string;
  /** Cancels the operation, which is then rejected with `Aborted`. */
  signal?: AbortSignal | undefined;
}>;

/** Names a lock by the id that its acquisition returned. */
export type LockOp = Readonly<{
  /** The id that the acquisition returned: 22 characters of base64url. */
  lockId: string;
  /** Cancels the operation, which is then rejected with `Aborted`; the store may have carried it out. */
  signal?: AbortSignal | undefined;
}>;

/** Names several locks by the ids that their acquisition returned. */
export type LocksOp = Readonly<{
  /** The ids that the acquisition returned: at most 100. */
  lockIds: readonly string[];
  /** Cancels the operation, which is then rejected with `Aborted`; the store may have carried it out. */
  signal?: AbortSignal | undefined;
}>;

/** What is asked of one key: the lock on it, or slots of it. A text alone stands for the lock. */
export type Claim = Readonly<{
  /** Names what the lock protects: at most 512 bytes of UTF-8 after NFC normalisation. */
  key: string;
  /**
   * At most so many hold a slot of the key at a time; 1 to 1000. The limit is that of whoever asks: where different ones are in
   * use, there are never more holders than the largest of them says. Slots have nothing to do with the lock on the key itself.
   */
  slots?: number | undefined;
  /** How many slots to take, or none: at most 100. Default 1. */
  take?: number | undefined;
}>;

/** A claim of one slot. */
export type SlotClaim = Readonly<{
  /** The key of the slots. */
  key: string;
  /** At most so many hold a slot of the key at a time; 1 to 1000. */
  slots: number;
  /** With it, several are asked for: {@link Claim}. */
  take?: undefined;
}>;

/** Several claims, all or nothing: at most 100 locks, and no key twice. */
export type Claims = readonly (string | Claim)[];

/** One of several locks that were granted together. */
export type GrantedLock = {
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
export type LockSet = {
  /** The locks, in the order of their keys. */
  readonly locks: readonly GrantedLock[];
  /** The fencing token of each key; of several slots of a key, that of the last of them in `locks`. */
  readonly fences: ReadonlyMap<string, Fence>;
  /** Proof of ownership: whoever knows them can release and extend the locks. */
  readonly lockIds: readonly string[];
};

/** Several locks of a backend of this package, which are extended and released together, and lost when one of them is. */
export type HeldLocks<C extends BackendCapabilities = FencingCapabilities> = DisposableLockHandle &
  StoreMembers<C> &
  LockSet & {
    /** The locks were granted. */
    ok: true;
    /** When the first of them ends, in milliseconds since the Unix epoch. */
    expiresAtMs: number;
    /** Always there: pass it to what the locks protect. Its reason names the lock that was lost. */
    readonly signal: AbortSignal;
  };

/** A slot of a backend of this package. */
export type HeldSlot<C extends BackendCapabilities = FencingCapabilities> = HeldLock<C> & {
  /** Its number, from 1 on. */
  readonly slot: number;
};

/** Looks up a lock by its key. */
export type KeyLookup = {
  /** The key of the lock. */
  key: string;
  /** Cancels the lookup, which is then rejected with `Aborted`. */
  signal?: AbortSignal | undefined;
};

/** Looks up a lock by its lock id. */
export type OwnershipLookup = {
  /** The id that the acquisition returned. */
  lockId: string;
  /** Cancels the lookup, which is then rejected with `Aborted`. */
  signal?: AbortSignal | undefined;
};

/** A granted lock. Times are milliseconds since the Unix epoch, on the backend's clock. */
export type AcquireOk<C extends BackendCapabilities> = {
  /** The lock was granted. */
  ok: true;
  /** Proof of ownership: whoever knows it can release and extend the lock. */
  lockId: string;
  /** When the lock ends. */
  expiresAtMs: number;
} & (C["supportsFencing"] extends true
  ? {
      /** The fencing token: larger than that of every earlier lock on the key. */
      fence: Fence;
    }
  : // eslint-disable-next-line @typescript-eslint/no-empty-object-type -- adds nothing to the intersection
    {});

/** A granted lock, or `{ ok: false }` because somebody holds it. */
export type AcquireResult<C extends BackendCapabilities> =
  | AcquireOk<C>
  | {
      /** The lock was not granted. */
      ok: false;
      /** Somebody holds it. */
      reason: "locked";
    };

/**
 * Whether the lock was released; `{ ok: false }` if it was gone before.
 *
 * A release whose answer was lost is repeated. If the store then has no such lock, the one before counts as done: `{ ok: true }`.
 */
export type ReleaseResult =
  | {
      /** This call has released the lock. */
      ok: true;
    }
  | {
      /** The lock had ended, was released before, or was taken by somebody else. */
      ok: false;
    };

/** When the lock ends now; `{ ok: false }` if it was gone before. */
export type ExtendResult =
  | {
      /** The lock was extended. */
      ok: true;
      /** When it ends now, in milliseconds since the Unix epoch, on the backend's clock. */
      expiresAtMs: number;
    }
  | {
      /** The lock had ended, was released before, or was taken by somebody else: it is not yours any more. */
      ok: false;
    };

/** A lock as lookups show it: hashes in place of the identifiers. */
export type LockInfo<C extends BackendCapabilities> = {
  /** The fingerprint of the key: `hashKey(key)`. */
  keyHash: HashId;
  /** The fingerprint of the lock id: `hashKey(lockId)`. */
  lockIdHash: HashId;
  /** When the lock ends, in milliseconds since the Unix epoch. */
  expiresAtMs: number;
  /** When the lock was granted, in milliseconds since the Unix epoch. */
  acquiredAtMs: number;
} & (C["supportsFencing"] extends true
  ? {
      /** The fencing token of the lock. */
      fence: Fence;
    }
  : {
      /** The fencing token of the lock, if the backend has them. */
      fence?: Fence;
    });

/** A lock with its raw identifiers. Sensitive: for debugging only. */
export type LockInfoDebug<C extends BackendCapabilities> = LockInfo<C> &
  StoredLabels & {
    /** The key. */
    key: string;
    /** The lock id: whoever knows it can release the lock. */
    lockId: string;
  };

/**
 * A backend as every function of this package accepts it: a {@link LockBackend}, or a backend of your own whose `acquire`
 * returns plain results without the methods of a handle.
 */
export interface LockBackendLike<C extends BackendCapabilities = BackendCapabilities> {
  /**
   * Tries once to take the lock for `ttlMs` milliseconds.
   *
   * @returns the lock, or `{ ok: false }` if somebody holds it
   * @throws LockError `InvalidArgument` that names the argument; `Aborted` if the signal came first; or the store's error
   */
  acquire: (
    opts: KeyOp & {
      /** Milliseconds after which the lock ends by itself. */
      ttlMs: number;
    },
  ) => Promise<AcquireResult<C>>;
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
  extend: (
    opts: LockOp & {
      /** Milliseconds from now until the lock ends by itself. */
      ttlMs: number;
    },
  ) => Promise<ExtendResult>;
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
export interface LockBackend<
  C extends BackendCapabilities = BackendCapabilities,
> extends LockBackendLike<C> {
  /**
   * Tries once to take the lock for `ttlMs` milliseconds. The result can be used with `await using`.
   *
   * @returns the lock with the methods of a handle, or `{ ok: false }` if somebody holds it
   * @throws LockError `InvalidArgument` that names the argument; `Aborted` if the signal came first; or the store's error
   */
  acquire: (
    opts: KeyOp & {
      /** Milliseconds after which the lock ends by itself. */
      ttlMs: number;
    },
  ) => Promise<DecoratedAcquireResult<C>>;
}

/**
 * Called when a release fails where nothing can be thrown: at the end of an `await using` block or of `lock()`. Without such a
 * function the error is printed, with neither key nor lock id, unless `NODE_ENV` is `production` and `SYNCGUARD_DEBUG` is not
 * `true`.
 *
 * @param error - the error of the release; a thrown value that is not an `Error` is its `originalError`
 * @param context - raw identifiers, and where it happened
 */
export type OnReleaseError = (
  error: Error,
  context: {
    /** The id of the lock that was not released. */
    lockId: string;
    /** Its key. */
    key: string;
    /** Where it happened: always at the end of a block or of `lock()`. */
    source: "disposal";
  },
) => void;

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
export type OnLost = (
  error: LockError,
  context: {
    /** The id of the lock. */
    lockId: string;
    /** Its key. */
    key: string;
  },
) => void;

/** What a granted lock can do, and what becomes of it. The functions need no `this` and may be destructured. */
export interface DisposableLockHandle {
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
   *   await held.release();
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
export type AsyncLock<C extends BackendCapabilities = BackendCapabilities> = AcquireOk<C> &
  DisposableLockHandle;

/**
 * A lock of a backend of this package: an {@link AsyncLock} that knows its key and surely has its signal. What is spread of it has
 * both, too.
 */
export type HeldLock<C extends BackendCapabilities = FencingCapabilities> = AsyncLock<C> &
  StoreMembers<C> & {
    /** The key as given. */
    readonly key: string;
    /** Always there: pass it to what the lock protects. */
    readonly signal: AbortSignal;
  };

/** What the locks of a store can do besides. */
export type StoreMembers<C extends BackendCapabilities> =
  C extends Record<"backend", "postgres">
    ? PostgresGuard
    : C extends Record<"backend", "firestore">
      ? FirestoreGuard
      : C extends Record<"backend", "redis">
        ? RedisGuard
        : unknown;

/** What the lock of `once()` can do besides, on a store where the work can be done in one transaction with the note that it is. */
export type OnceMembers<C extends BackendCapabilities> =
  C extends Record<"backend", "postgres">
    ? PostgresDone
    : C extends Record<"backend", "firestore">
      ? FirestoreDone
      : unknown;

/** What locks in PostgreSQL can do besides. The functions need no `this` and may be destructured. */
export interface PostgresGuard {
  /**
   * Checks in a transaction of yours, in the database of the locks, that the lock is held, or all of several, and keeps it from being
   * taken over until the transaction ends, however long that takes: what is committed was written by the holder. One round trip.
   *
   * If the lock is gone, the transaction has failed, so that it cannot be committed even if the error is caught.
   *
   * @param tx - what postgres.js' `sql.begin()` gives, or a `Client` or `PoolClient` of pg after its `BEGIN`; for others there is
   *   {@link PostgresGuard.guardQuery}
   * @throws LockError `LockLost` if the lock is not held any more, of which its `signal` hears, too; `InvalidArgument` for what is no
   *   transaction, or one of another database, and where the index on `lock_id` is missing; `AuthFailed` if the role of the
   *   transaction has not the rights; or the error of your client
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
   * The statement of {@link PostgresGuard.guard}, for clients that it does not know: run it in your transaction, before or after its
   * writes. It fails if the lock is gone, with a message that contains `LockLost`, and the transaction with it; otherwise it gives a
   * row that need not be looked at.
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
}

/** What the lock of `once()` in PostgreSQL can do besides. The functions need no `this` and may be destructured. */
export interface PostgresDone {
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
   * The statement of {@link PostgresDone.done}, for clients that it does not know: run it in your transaction, after its writes.
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
export interface GuardQuery {
  /** The SQL, with `$1` … for the values. */
  text: string;
  /** The values, all of them texts. */
  values: string[];
}

/** A transaction of postgres.js, or a pg `Client` or `PoolClient` in one. */
export type PostgresTransaction =
  | {
      /** Runs a statement. */
      unsafe: (...args: never[]) => unknown;
      /** What tells a transaction from the instance. */
      savepoint: (...args: never[]) => unknown;
    }
  | {
      /** Runs a statement. */
      query: (...args: never[]) => unknown;
      /** A pool has none. */
      escapeIdentifier: (...args: never[]) => unknown;
    };

/** What locks in Firestore can do besides. The function needs no `this` and may be destructured. */
export interface FirestoreGuard {
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
export interface FirestoreDone {
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
export interface FirestoreTransaction {
  /** Reads a document. */
  get: (...args: never[]) => unknown;
  /** Reads several documents. */
  getAll: (...args: never[]) => unknown;
}

/** What locks in Redis can do besides. */
export interface RedisGuard {
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
export interface RedisEvalOptions {
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
export type RedisReply = string | number | null | LockError | RedisReply[];

/** An acquisition's result that can be used with `await using`. Without a lock the methods do nothing. */
export type DecoratedAcquireResult<C extends BackendCapabilities> =
  | AsyncLock<C>
  | ({
      /** The lock was not granted. */
      ok: false;
      /** Somebody holds it. */
      reason: "locked";
    } & DisposableLockHandle);

/** Whether and how a lock extends itself while it is held; `true` for the defaults. */
export type AutoExtend = boolean | AutoExtendOptions;

/** How a lock extends itself. Heartbeats that fail are tried again until the lock ends. */
export interface AutoExtendOptions {
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
export interface AcquisitionOptions {
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
   * any case when the next retry is due; `"poll"` only the latter. An attempt that follows a message is not a retry.
   */
  wait?: "notify" | "poll" | undefined;
  /** Ends the waiting; has no effect once the lock is held. */
  signal?: AbortSignal | undefined;
}

/** Which lock `lock()` takes, and how. */
export interface LockConfig extends LockLabels {
  /** Names what the lock protects: at most 512 bytes of UTF-8 after NFC normalisation. */
  key: string;
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

/** The handle that `lock()` passes to its callback. */
export type LockHandle<C extends BackendCapabilities = FencingCapabilities> = LockHandleMembers<C> &
  StoreMembers<C> & {
    /**
     * Aborted when the lock is lost, with a `LockError` of the code `LockLost` as its reason, and with `config.signal`, for its
     * reason. Without `autoExtend` the lock is lost when its time is over.
     */
    readonly signal: AbortSignal;
  };

/** The handle that `once()` passes to its function. */
export type OnceHandle<C extends BackendCapabilities = FencingCapabilities> = LockHandle<C> &
  OnceMembers<C>;

/** What the handles of callbacks have in common. */
export type LockHandleMembers<C extends BackendCapabilities = FencingCapabilities> = {
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
} & (C["supportsFencing"] extends true
  ? {
      /** The fencing token: larger than that of every earlier lock on the key. */
      readonly fence: Fence;
    }
  : {
      /** The fencing token, if the backend has them. */
      readonly fence?: Fence;
    });

/**
 * `lock()` bound to a backend: waits for the lock, runs `fn` while it is held, and frees it whatever `fn` did.
 *
 * @throws LockError `AcquisitionTimeout` if others held it for too long; `Aborted` if a signal ended the waiting;
 *   `InvalidArgument` that names the option; `LockLost` with `throwIfLost`; or the backend's error
 */
export type BoundLock<C extends BackendCapabilities = FencingCapabilities> = {
  /** Under the lock on a key. */
  <T>(fn: (handle: LockHandle<C>) => Promise<T> | T, config: LockConfig): Promise<T>;
  /** Under one slot of a key. */
  <T>(fn: (handle: SlotHandle<C>) => Promise<T> | T, config: LockConfigOf<SlotClaim>): Promise<T>;
  /** Under several locks, all or nothing. */
  <T>(
    fn: (handle: LocksHandle<C>) => Promise<T> | T,
    config: LockConfigOf<Claims | Required<Claim>>,
  ): Promise<T>;
};

/** {@link LockConfig} for other things than a key. */
export type LockConfigOf<What> = Omit<LockConfig, "key"> & {
  /** What to take. */
  key: What;
};

/** The handle that `lock()` passes to its callback where it was given a slot. */
export type SlotHandle<C extends BackendCapabilities = FencingCapabilities> = LockHandle<C> & {
  /** Its number, from 1 on. */
  readonly slot: number;
};

/** The handle that `lock()` passes to its callback where it was given claims. */
export type LocksHandle<C extends BackendCapabilities = FencingCapabilities> = Pick<
  HeldLocks,
  "expiresAtMs" | "signal" | "extend"
> &
  StoreMembers<C> &
  LockSet;

/** What `createLock()` gives: {@link BoundLock} with a backend of its own, which is closed with it. */
export type ClosableLock<C extends BackendCapabilities = FencingCapabilities> = BoundLock<C> & {
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

/** How `backend.lock()` takes the lock. */
export interface BackendLockOptions extends LockLabels {
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

/**
 * Called when the function of `lead()` has thrown, or a campaign has failed; `lead()` goes on. Without such a function the error is
 * printed, in production, too.
 *
 * @param error - what the function has thrown, or the error of the store
 * @param context - the raw key, and where it happened
 */
export type OnLeadError = (
  error: unknown,
  context: {
    /** The key for which was campaigned. */
    key: string;
    /** Whether the function has thrown it, or the store has failed. */
    source: "term" | "campaign";
  },
) => void;

/** How `lead()` campaigns and leads. */
export interface LeadOptions extends LockLabels {
  /** Milliseconds after which others take over from a leader that is dead or cut off. Default 30000. */
  ttlMs?: number | undefined;
  /** A label to store with the lock, by which people see who leads. Default: the host's name and the id of the process. */
  owner?: string | undefined;
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

/** What the function of `lead()` is given; with what locks of the store can do besides, as with any lock. */
export type Leadership<C extends BackendCapabilities = FencingCapabilities> = StoreMembers<C> & {
  /** The key as given. */
  readonly key: string;
  /**
   * Aborted when this process is not to lead any more: with `LockLost` when the lock is lost or `releaseAll()` is called, because then
   * another process may lead already; and with the `signal` of the options, for its reason.
   */
  readonly signal: AbortSignal;
} & (C["supportsFencing"] extends true
    ? {
        /** The fencing token of the term: larger than that of every earlier term, in whatever process. */
        readonly fence: Fence;
        /** {@link fence} as a number, for logs, metrics and columns of numbers. Terms are not consecutive. */
        readonly term: number;
      }
    : {
        /** The fencing token of the term, if the backend has them. */
        readonly fence?: Fence;
        /** {@link fence} as a number. */
        readonly term?: number;
      });
/** Which period `once()` is asked for, and how it takes the lock. */
export interface OnceOptions extends LockLabels {
  /**
   * Names the period, or the version: a moment, a whole number that is not negative, or a text whose order is that of its
   * characters, such as an ISO date; a text of digits alone is a number. A key has either numbers or texts. At most 100 printable
   * characters of ASCII.
   */
  due: Date | number | string;
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
export type OnceResult<T> =
  | {
      /** It ran here, to its end, and is stored as done. */
      ran: true;
      /** What the function has returned. */
      value: T;
    }
  | {
      /** It did not run here. */
      ran: false;
      /** It was done before, for this period or for a later one. */
      reason: "done";
      /** When that was stored, on the store's clock. */
      doneAt: Date;
      /** The last period that is stored as done; of a moment its milliseconds. */
      lastDue: string;
    }
  | {
      /** It did not run here. */
      ran: false;
      /** Somebody else holds the lock: they do it, or something else under the same key. */
      reason: "running";
    };

/** Options of every backend of this package. */
export interface CommonBackendOptions {
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
export type AcquireOptions = LockLabels & {
  /** Milliseconds after which the lock ends by itself. */
  ttlMs: number;
  /** Extends the lock by itself while it is held. Default: it ends with its TTL. */
  autoExtend?: AutoExtend | undefined;
};

/** `acquire()` of a backend of this package. */
export type AcquireMethod<C extends BackendCapabilities = FencingCapabilities> = {
  /** The lock on a key. */
  (
    opts: KeyOp & AcquireOptions,
  ): Promise<HeldLock<C> | Extract<DecoratedAcquireResult<C>, { ok: false }>>;
  /** Several locks, all or nothing. Without them, `key` names what stood in the way. */
  (
    opts: AcquireOptions & {
      /** What to take. */
      claims: Claims;
      /** Cancels the operation, which is then rejected with `Aborted`. */
      signal?: AbortSignal | undefined;
    },
  ): Promise<
    | HeldLocks<C>
    | (Extract<DecoratedAcquireResult<C>, { ok: false }> & {
        /** What stood in the way. */
        readonly key?: string;
      })
  >;
};

/** `lock()` of a backend of this package. */
export type LockMethod<C extends BackendCapabilities = FencingCapabilities> = {
  /** The lock on a key. */
  (key: string, options?: BackendLockOptions): Promise<HeldLock<C>>;
  /** One slot of a key. */
  (claim: SlotClaim, options?: BackendLockOptions): Promise<HeldSlot<C>>;
  /** Several locks, all or nothing. */
  (claims: Claims | Required<Claim>, options?: BackendLockOptions): Promise<HeldLocks<C>>;
};

/** `once()` of a backend of this package. */
export type OnceMethod<C extends BackendCapabilities = FencingCapabilities> = <T>(
  key: string,
  options: OnceOptions,
  fn: (handle: OnceHandle<C>) => Promise<T> | T,
) => Promise<OnceResult<T>>;

/** A backend of this package: a {@link LockBackend} with more methods. All of them have fencing tokens. */
export interface SyncGuardBackend<
  C extends BackendCapabilities = FencingCapabilities,
> extends LockBackend<C> {
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
  extend: (
    opts: (LockOp | LocksOp) & {
      /** Milliseconds from now until the lock ends by itself. */
      ttlMs: number;
    },
  ) => Promise<ExtendResult>;
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
   * held.signal.throwIfAborted(); // between two steps of the work
   * ```
   * @example
   * ```ts
   * await using held = await backend.lock(["account:1", "account:2"]);
   * console.log("both accounts, under fences", held.fences.get("account:1"), held.fences.get("account:2"));
   * ```
   * @example
   * ```ts
   * await using permit = await backend.lock({ key: "api:partner", slots: 5 });
   * console.log("one of five: number", permit.slot);
   * ```
   */
  lock: LockMethod<C>;
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
  lead: (
    key: string,
    fn: (leadership: Leadership<C>) => unknown,
    options?: LeadOptions,
  ) => Promise<void>;
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
  forceRelease: (
    key: string,
    options?: {
      /** Cancels the operation, which is then rejected with `Aborted`; the store may have carried it out. */
      signal?: AbortSignal | undefined;
    },
  ) => Promise<ReleaseResult>;
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

/** Options of `releaseAll()`. */
export interface ReleaseAllOptions {
  /** Milliseconds after which it ends, whatever the store has answered. Default 5000. */
  timeoutMs?: number | undefined;
}

/** What `releaseAll()` has done. */
export interface ReleaseAllResult {
  /** How many locks were released; several that were granted together count as one. */
  released: number;
  /** How many were gone already, also one of several. */
  gone: number;
  /**
   * An error for each lock whose release has failed or was not answered in time; such a lock ends with its TTL. Another call
   * tries them again.
   */
  failed: LockError[];
}

/** An event of telemetry, which reports one operation, or the loss of a lock. */
export type LockEvent = {
  /** Which operation; `"lost"` when a lock was lost. */
  type: "acquire" | "release" | "extend" | "isLocked" | "lookup" | "forceRelease" | "lost";
  /** Whether it gave what was asked for: `"fail"` for contention, an absent lock, `false`, `null` and errors. */
  result: "ok" | "fail";
  /** `hashKey(key)`, when the operation has a key. */
  keyHash?: HashId;
  /** How many keys the operation is about, when it has several; how many lock ids, where only those are known. */
  claims?: number;
  /** `hashKey(key)` of each of them. */
  keyHashes?: HashId[];
  /** `hashKey(lockId)`, when the operation has a lock id. */
  lockIdHash?: HashId;
  /** Why an acquisition, release or extension did nothing, when known; `"done"` only for `once()`. */
  reason?: "locked" | "done" | "expired" | "not-found";
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
  /** The key; only if `includeRaw` allows. */
  key?: string;
  /** Several keys; only if `includeRaw` allows. */
  keys?: readonly string[];
  /** The lock id; only if `includeRaw` allows. */
  lockId?: string;
};

/**
 * A message on one of the channels `syncguard:acquire`, `…:release`, `…:extend`, `…:isLocked`, `…:lookup`, `…:forceRelease`,
 * `…:lost` and `…:wait` of `node:diagnostics_channel`. Only backends of this package publish. Members that it shares with
 * {@link LockEvent} mean the same.
 */
export interface DiagnosticsMessage extends Pick<
  LockEvent,
  | "result"
  | "keyHash"
  | "claims"
  | "keyHashes"
  | "lockIdHash"
  | "reason"
  | "waitMs"
  | "attempts"
  | "wakeups"
  | "heldMs"
  | "extensions"
  | "lost"
> {
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

/** Which way a backend takes to its server, and why. */
export interface BackendTransport {
  /**
   * - `"native"`: over connections of this package. Waiters hear of releases, and locks are extended also while the event loop
   *   is blocked.
   * - `"client"`: through the methods of your client. Waiters poll, and a blocked event loop stops extensions.
   */
  readonly way: "native" | "client";
  /** Why, for people. It names settings and shows no values. */
  readonly reason: string;
}

/** Options of `withTelemetry()`. */
export interface TelemetryOptions {
  /** Called for each operation. Not awaited; what it throws is ignored. */
  onEvent: (event: LockEvent) => void;
  /** Whether events carry raw identifiers. Default false; a predicate that throws means false. */
  includeRaw?: boolean | ((event: LockEvent) => boolean) | undefined;
}
