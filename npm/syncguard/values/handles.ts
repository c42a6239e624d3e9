// For `await using`. Node's types bring it along; who has others would have to name it in `lib`.
/// <reference lib="esnext.disposable" preserve="true" />

// What holds a lock for its user.

import type { FirestoreDone, FirestoreGuard } from "../firestore/members.js";
import type { PostgresDone, PostgresGuard } from "../postgres/members.js";
import type { RedisGuard } from "../redis/members.js";
import type { BackendCapabilities, FencingCapabilities } from "./capabilities.js";
import type { Fence, LockSet } from "./names.js";
import type { AcquireOk, ExtendResult, ReleaseResult } from "./results.js";

/** Several locks of a backend of this package, which are extended and released together, and lost when one of them is. */
export type HeldLocks<C extends BackendCapabilities = FencingCapabilities> = DisposableLockHandle &
  Assertable &
  StoreMembers<C> &
  LockSet & {
    /** The locks were granted. */
    ok: true;
    /** When the first of them ends, in milliseconds since the Unix epoch; `extend` and heartbeats update it. */
    readonly expiresAtMs: number;
    /** Always there: pass it to what the locks protect. Its reason names the lock that was lost. */
    readonly signal: AbortSignal;
  };

/** A slot of a backend of this package. */
export type HeldSlot<C extends BackendCapabilities = FencingCapabilities> = HeldLock<C> & {
  /** Its number, from 1 on. */
  readonly slot: number;
};

/** What can say at any moment whether a lock is held. */
export interface Assertable {
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
export type AsyncLock<C extends BackendCapabilities = BackendCapabilities> = AcquireOk<C> &
  DisposableLockHandle;

/**
 * A lock of a backend of this package: an {@link AsyncLock} that knows its key and surely has its signal. What is spread of it has
 * both, too.
 */
export type HeldLock<C extends BackendCapabilities = FencingCapabilities> = AsyncLock<C> &
  Assertable &
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

/** An acquisition's result that can be used with `await using`. Without a lock the methods do nothing. */
export type DecoratedAcquireResult<C extends BackendCapabilities> =
  | AsyncLock<C>
  | ({
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
export type LockHandleMembers<C extends BackendCapabilities = FencingCapabilities> = Assertable & {
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

/** The handle that `lock()` passes to its callback where it was given a slot. */
export type SlotHandle<C extends BackendCapabilities = FencingCapabilities> = LockHandle<C> & {
  /** Its number, from 1 on. */
  readonly slot: number;
};

/** The handle that `lock()` passes to its callback where it was given claims. */
export type LocksHandle<C extends BackendCapabilities = FencingCapabilities> = Pick<
  HeldLocks,
  "expiresAtMs" | "signal" | "extend" | "assertHeld"
> &
  StoreMembers<C> &
  LockSet;

/** What the function of `lead()` is given; with what locks of the store can do besides, as with any lock. */
export type Leadership<C extends BackendCapabilities = FencingCapabilities> = Assertable &
  StoreMembers<C> & {
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
