// Backends, and what is bound to one.

import type { BackendTransport } from "../options/backend-transport.js";
import type { BackendCapabilities, FencingCapabilities } from "./capabilities.js";
import type {
  DecoratedAcquireResult,
  HeldLock,
  HeldLocks,
  HeldSlot,
  Leadership,
  LockHandle,
  LocksHandle,
  OnceHandle,
  SlotHandle,
} from "./handles.js";
import type {
  Claim,
  Claims,
  KeyLookup,
  KeyOp,
  LockOp,
  LocksOp,
  OwnershipLookup,
  ModeClaim,
  SlotClaim,
} from "./names.js";
import type {
  AcquireOptions,
  BackendLockOptions,
  LeadOptions,
  LockConfig,
  LockConfigOf,
  OfSlot,
  OnceOptions,
  OnceResult,
  ReleaseAllOptions,
  ReleaseAllResult,
  SlotConfig,
  TryLockOptions,
  TryLockResult,
} from "./options.js";
import type { AcquireResult, ExtendResult, LockInfo, ReleaseResult } from "./results.js";

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
 * `lock()` bound to a backend: waits for the lock, runs `fn` while it is held, and frees it whatever `fn` did.
 *
 * @throws LockError `AcquisitionTimeout` if others held it for too long; `Aborted` if a signal ended the waiting;
 *   `InvalidArgument` that names the option; `LockLost` with `throwIfLost`; or the backend's error
 */
export type BoundLock<C extends BackendCapabilities = FencingCapabilities> = Bound<C> & Bound;

/** Beside that of `C`, it is there for any store: what backends of several stores may be can be called by what they have in common. */
type Bound<C extends BackendCapabilities = FencingCapabilities> = {
  /** Under the lock on a key. */
  <T>(
    fn: (handle: LockHandle<C>) => Promise<T> | T,
    config: LockConfig | LockConfigOf<ModeClaim>,
  ): Promise<T>;
  /** Under one slot of a key. */
  <T>(fn: (handle: SlotHandle<C>) => Promise<T> | T, config: SlotConfig): Promise<T>;
  /** Under several locks, all or nothing. */
  <T>(
    fn: (handle: LocksHandle<C>) => Promise<T> | T,
    config: LockConfigOf<Claims | Required<Omit<Claim, "mode">>>,
  ): Promise<T>;
};

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

/** `acquire()` of a backend of this package. */
export type AcquireMethod<C extends BackendCapabilities = FencingCapabilities> = {
  /** The lock on a key. */
  (
    opts: KeyOp & AcquireOptions,
  ): Promise<HeldLock<C> | Extract<DecoratedAcquireResult<C>, { ok: false }>>;
  /** One slot of a key. */
  (
    opts: KeyOp & OfSlot<AcquireOptions>,
  ): Promise<HeldSlot<C> | Extract<DecoratedAcquireResult<C>, { ok: false }>>;
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
  (key: string | ModeClaim, options?: BackendLockOptions): Promise<HeldLock<C>>;
  /** One slot of a key. */
  (key: string, options: OfSlot<BackendLockOptions>): Promise<HeldSlot<C>>;
  /** The same, as a claim. */
  (claim: SlotClaim, options?: BackendLockOptions): Promise<HeldSlot<C>>;
  /** Several locks, all or nothing. */
  (
    claims: Claims | Required<Omit<Claim, "mode">>,
    options?: BackendLockOptions,
  ): Promise<HeldLocks<C>>;
  /** The lock on a key once more: the compiler's errors name the last signature. */
  (key: string | ModeClaim, options?: BackendLockOptions): Promise<HeldLock<C>>;
};

/** `tryLock()` of a backend of this package. */
export type TryLockMethod<C extends BackendCapabilities = FencingCapabilities> = TryLock<C> &
  TryLock;

/** As `Bound`, there for any store, too. */
type TryLock<C extends BackendCapabilities = FencingCapabilities> = {
  /** Under the lock on a key. */
  <T>(
    key: string | ModeClaim,
    fn: (handle: LockHandle<C>) => Promise<T> | T,
    options?: TryLockOptions,
  ): Promise<TryLockResult<T>>;
  /** Under one slot of a key. */
  <T>(
    key: string,
    fn: (handle: SlotHandle<C>) => Promise<T> | T,
    options: OfSlot<TryLockOptions>,
  ): Promise<TryLockResult<T>>;
  /** The same, as a claim. */
  <T>(
    claim: SlotClaim,
    fn: (handle: SlotHandle<C>) => Promise<T> | T,
    options?: TryLockOptions,
  ): Promise<TryLockResult<T>>;
  /** Under several locks, all or nothing. */
  <T>(
    claims: Claims | Required<Omit<Claim, "mode">>,
    fn: (handle: LocksHandle<C>) => Promise<T> | T,
    options?: TryLockOptions,
  ): Promise<TryLockResult<T>>;
  /** Under the lock on a key once more: the compiler's errors name the last signature, unless it is the same as another. */
  <T>(
    key: string,
    fn: (handle: LockHandle<C>) => Promise<T> | T,
    options?: TryLockOptions,
  ): Promise<TryLockResult<T>>;
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
