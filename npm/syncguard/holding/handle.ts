/** Makes handles: the methods of a granted lock, and its release at the end of a block. */

import { LockError } from "../native/errors.js";
import type { Busy } from "../native/outcome.js";
import { checkAborted, readSignal } from "../native/signal.js";
import { invalid } from "../options/validation.js";
import "../values/disposable.js";
import { checkDisposal, type DisposalOptions } from "../values/arguments.js";
import { endOf, systemClock } from "../values/clock.js";
import { disposalWith, PLAIN_TERMS, type WantedTerms } from "./grant.js";
import { disposeHeld, extendHeld, releaseById, releaseHeld } from "./held.js";
import { Lease } from "./lease.js";
import { Refusals } from "../values/refusals.js";
import {
  accessTo,
  type Extending,
  type HolderAccess,
  internalsOf,
  type Releasing,
} from "./internals.js";
import type {
  AcquireOk,
  AcquireResult,
  AsyncLock,
  BackendCapabilities,
  DecoratedAcquireResult,
  DisposableLockHandle,
  GrantedLock,
  HeldLocks,
  KeyOp,
  LockBackend,
  LockBackendLike,
  OnReleaseError,
} from "../values/types.js";

/** The part of a backend that handles need. */
type Mutations<C extends BackendCapabilities> = Pick<LockBackend, "release" | "extend"> & {
  /** What the backend can do. */
  readonly capabilities?: Readonly<C>;
};

/** Checks the options of handles; `null` counts as not given. */
export function readDisposal(disposal: DisposalOptions): DisposalOptions {
  const options: DisposalOptions = {
    onReleaseError: disposal.onReleaseError ?? undefined,
    onLost: disposal.onLost ?? undefined,
    disposeTimeoutMs: disposal.disposeTimeoutMs ?? undefined,
  };
  checkDisposal(options);
  return options;
}

/** A handle. Its methods and the members of results are its own properties, so that an object that it is spread into has them, too. */
class Handle extends Refusals {
  declare ok: true;
  declare lockId: string;
  declare fence?: string;
  declare key?: string;
  declare slot?: number;
  declare locks?: readonly GrantedLock[];
  declare fences?: ReadonlyMap<string, string>;
  declare lockIds?: readonly string[];
  declare assertHeld?: () => void;
  readonly #lease: Lease;
  readonly #disposal: DisposalOptions;

  constructor(lease: Lease, disposal: DisposalOptions) {
    super();
    this.#lease = lease;
    this.#disposal = disposal;
  }

  /** This is a getter because nothing can be written into a handle that users freeze, as Immer does. */
  get expiresAtMs(): number {
    return behind(this).#lease.expiresAtMs;
  }

  /** This is a getter so that no signal is made until somebody asks for it. */
  get signal(): AbortSignal {
    return behind(this).#lease.signal;
  }

  static is(result: object): result is Handle {
    return #lease in result;
  }

  static lease(handle: Handle): Lease {
    return handle.#lease;
  }

  static disposal(handle: Handle): DisposalOptions {
    return handle.#disposal;
  }
}

// Handles print and compare as plain objects: refusals.ts does the same.
Object.defineProperty(Handle.prototype, "constructor", { value: Object });

/** All handles share these getters, so that V8 sees that they have the same shape. */
const EXPIRY = Object.getOwnPropertyDescriptor(Handle.prototype, "expiresAtMs") as Getter;
const SIGNAL = Object.getOwnPropertyDescriptor(Handle.prototype, "signal") as Getter;

/** A method of every object that TypeScript does not declare. */
type LegacyAccessors = { __defineGetter__(name: string, get: Getter["get"]): void };
type Getter = { get: () => unknown };

/** An argument by which a handle's `extend` answers with the handle itself. A property that led there would be printed. */
const WHOSE: unique symbol = Symbol("whose");

/** Finds the handle behind a Proxy, or behind an object that inherits from a handle: neither has private fields. */
function behind(handle: Handle): Handle {
  if (Handle.is(handle)) return handle;
  const { extend } = handle as { extend?: (asked: typeof WHOSE) => unknown };
  const owner = extend?.(WHOSE);
  if (typeof owner === "object" && owner !== null && Handle.is(owner)) return owner;
  throw new TypeError("a lock's member was asked for of an object that is no lock");
}

/** The lease behind the result of an acquisition; `undefined` if that is no handle. */
export function leaseOf(result: object): Lease | undefined {
  return Handle.is(result) ? Handle.lease(result) : undefined;
}

/** The options of disposal of a result, if that is a handle. */
export function disposalOf(result: object): DisposalOptions {
  return Handle.is(result) ? Handle.disposal(result) : {};
}

/** Makes the handle of a lock that a backend of this package has granted. */
export function createHandle(
  access: HolderAccess,
  lease: Lease,
  fence: string,
  disposal: DisposalOptions,
  isSet = false,
): Handle & DisposableLockHandle {
  const handle = new Handle(lease, disposal);
  handle.ok = true;
  if (isSet) {
    showMember(handle, "expiresAtMs", EXPIRY);
    return addMethods(access, complete(Object.assign(handle, membersOfSet(lease)), lease), lease);
  }
  handle.lockId = lease.lockId;
  showMember(handle, "expiresAtMs", EXPIRY);
  handle.fence = fence;
  const slot = lease.locks?.[0]?.slot;
  if (typeof slot === "number") handle.slot = slot;
  return addMethods(access, complete(handle, lease), lease);
}

/** The members by which a handle shows several locks. */
export function membersOfSet(lease: Lease): Pick<HeldLocks, "locks" | "fences" | "lockIds"> {
  const locks = (lease.locks ?? []).map(({ key, slot, lockId, fence }): GrantedLock =>
    slot === null ? { key, lockId, fence } : { key, slot, lockId, fence },
  );
  return {
    locks,
    lockIds: locks.map(({ lockId }) => lockId),
    fences: new Map(locks.map(({ key, fence }) => [key, fence])),
  };
}

/** Makes a handle of the lock in `result`, which may be a handle already. `disposal` must have been checked. */
function handleOver<C extends BackendCapabilities>(
  backend: Extending & Releasing,
  result: AcquireOk<C>,
  key: string,
  disposal: DisposalOptions,
): AsyncLock<C> {
  const before = leaseOf(result);
  if (before === undefined && (result as { locks?: unknown }).locks !== undefined) {
    throw invalid("the result of several claims is a handle already");
  }
  return handleWith(backend, result, before ?? newlyHeld(backend, result, key), disposal);
}

/**
 * As {@link handleOver}, for the answer of a user's own backend. That may have taken another key, and may give every caller the same
 * handle.
 */
export function handleOfCall<C extends BackendCapabilities>(
  backend: Extending & Releasing,
  result: AcquireOk<C>,
  key: string,
  wanted?: WantedTerms,
): AsyncLock<C> {
  const before = leaseOf(result);
  const isUsers = before === undefined || users.has(before);
  const lease = isUsers ? newlyHeld(backend, result, key) : before;
  lease.callIt(key);
  if (wanted !== undefined) lease.agreeOn(wanted);
  return handleWith(backend, result, lease, disposalWith(disposalOf(result), wanted));
}

function handleWith<C extends BackendCapabilities>(
  backend: Extending & Releasing,
  result: AcquireOk<C>,
  lease: Lease,
  disposal: DisposalOptions,
): AsyncLock<C> {
  const handle = new Handle(lease, disposal);
  // The methods are added anew below, because those of `result` may be bound to another backend.
  for (const name of Reflect.ownKeys(result)) copyMember(result, handle, name, lease);
  if (leaseOf(result) === lease && Object.hasOwn(result, "signal")) complete(handle, lease);
  return addMethods(accessTo(backend), handle, lease) as unknown as AsyncLock<C>;
}

/** The leases of locks that users' own backends have granted. */
const users = new WeakSet<Lease>();

/** A lease, and a handle of it. */
export type LeaseWithHandle<C extends BackendCapabilities> = { lease: Lease; handle: AcquireOk<C> };

/** The lease of what `acquireOf()` has acquired, which is a handle. */
export function leaseWithHandle<C extends BackendCapabilities>(
  handle: AcquireOk<C>,
): LeaseWithHandle<C> {
  return { lease: leaseOf(handle) as Lease, handle };
}

/** Finds the lease of a lock whose handle was copied, or makes one for a lock that a user's own backend has granted. */
function newlyHeld(
  backend: object,
  { lockId, expiresAtMs }: { lockId: string; expiresAtMs: number },
  key: string,
): Lease {
  const internals = internalsOf(backend);
  const granted = internals?.grants?.get(lockId);
  if (granted !== undefined) return granted;
  const clock = internals?.clock ?? systemClock;
  const [endMs, grantedMs] = [endOf(expiresAtMs, clock), clock.elapsed()];
  const lease = new Lease({
    ...{ key, lockId, locks: undefined, due: undefined },
    ...{
      grantedMs,
      endMs,
      expiresAtMs,
      lastsMs: endMs - grantedMs,
      terms: { ...PLAIN_TERMS, clock },
    },
  });
  lease.handOut();
  users.add(lease);
  return lease;
}

function copyMember(from: object, to: Handle, name: PropertyKey, lease: Lease): void {
  // To read `signal` would make one. The new handle has its own.
  if (name === "signal" || !Object.prototype.propertyIsEnumerable.call(from, name)) return;
  const value: unknown = Reflect.get(from, name);
  if (name !== "expiresAtMs") Reflect.set(to, name, value);
  else {
    lease.show(value as number);
    showMember(to, name, EXPIRY);
  }
}

/** Adds the members that results of SyncGuard 2 did not have. */
function complete(handle: Handle, lease: Lease): Handle {
  if (handle.locks === undefined) handle.key = lease.key;
  // The function refers to the handle, so that whoever keeps it keeps the handle alive, as with the other methods.
  handle.assertHeld = () => Handle.lease(handle).assertHeld();
  showMember(handle, "signal", SIGNAL);
  return handle;
}

/** Makes a getter the handle's own. Every lock comes through here, and `Object.defineProperty` takes much longer. */
function showMember(handle: Handle, name: string, { get }: Getter): void {
  (handle as unknown as LegacyAccessors).__defineGetter__(name, get);
}

/**
 * Adds the methods of a handle. They are assigned one by one, because every acquisition comes through here, and V8 takes several
 * times as long for an object literal with a computed name or a spread.
 */
function addMethods(
  access: HolderAccess,
  bareHandle: Handle,
  lease: Lease,
): Handle & DisposableLockHandle {
  // The only release. Either the holder starts it or the end of the block.
  let releasing: Promise<unknown> | undefined;
  const handle = bareHandle as Handle & Mutable<DisposableLockHandle>;
  lease.follow(handle);
  const members = lease.membersOfStore();
  if (members !== undefined) Object.assign(handle, members);
  handle.release = async (signal) => {
    if (releasing !== undefined) return { ok: false };
    // The signal is checked first, because an unusable one must not use up the only release.
    if (signal !== undefined) checkAborted(readSignal(signal));
    const release = releaseHeld(lease, access, signal);
    releasing = release;
    return await release;
  };
  handle.extend = (ttlMs, signal) =>
    (ttlMs as unknown) === WHOSE ? (handle as never) : extendHeld(lease, access, ttlMs, signal);
  handle[Symbol.asyncDispose] = async () => {
    if (releasing === undefined) {
      releasing = disposeHeld(lease, access, Handle.disposal(handle));
      await releasing;
    } else {
      // Whoever started the release gets its error.
      await releasing.catch(() => undefined);
    }
  };
  return handle;
}

type Mutable<T> = { -readonly [Name in keyof T]: T[Name] };

/** The result of an acquisition that found the lock held by somebody. */
export function noLock(
  lockedKey: string | undefined,
  busy?: Busy,
): { ok: false; reason: "locked" } & DisposableLockHandle {
  const why = lockedKey === undefined ? {} : { key: lockedKey };
  return { ok: false, reason: "locked", ...why, ...busy, ...NO_LOCK };
}

/** The methods of a handle without a lock, which do nothing. */
const NO_LOCK: DisposableLockHandle = {
  release: async () => ({ ok: false }),
  extend: async () => ({ ok: false }),
  [Symbol.asyncDispose]: async () => undefined,
};

/** As {@link createDisposableHandle}, with options that were checked before. */
export function decorate<C extends BackendCapabilities>(
  backend: Extending & Releasing,
  result: AcquireResult<C>,
  key: string,
  disposal: DisposalOptions,
): DecoratedAcquireResult<C> {
  return result.ok ? handleOver(backend, result, key, disposal) : { ...result, ...NO_LOCK };
}

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
export function createDisposableHandle<C extends BackendCapabilities>(
  backend: Mutations<C>,
  result: AcquireOk<C>,
  key: string,
  onReleaseError?: OnReleaseError,
  disposeTimeoutMs?: number,
): AsyncLock<C>;
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
export function createDisposableHandle<C extends BackendCapabilities>(
  backend: Mutations<C>,
  result: AcquireResult<C>,
  key: string,
  onReleaseError?: OnReleaseError,
  disposeTimeoutMs?: number,
): DecoratedAcquireResult<C>;
export function createDisposableHandle<C extends BackendCapabilities>(
  backend: Mutations<C>,
  result: AcquireResult<C>,
  key: string,
  onReleaseError?: OnReleaseError,
  disposeTimeoutMs?: number,
): DecoratedAcquireResult<C> {
  const disposal = readDisposal({ onReleaseError, disposeTimeoutMs });
  const handle = decorate(backend, result, key, disposal);
  const lease = leaseOf(handle);
  // The result may be a handle that was made for another key.
  lease?.callIt(key);
  return handle;
}

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
export function decorateAcquireResult<C extends BackendCapabilities>(
  backend: Mutations<C>,
  result: AcquireResult<C>,
  key: string,
  onReleaseError?: OnReleaseError,
  disposeTimeoutMs?: number,
): DecoratedAcquireResult<C> {
  return createDisposableHandle(backend, result, key, onReleaseError, disposeTimeoutMs);
}

/** Whether a result has the methods of a handle. */
export function isDecorated<C extends BackendCapabilities>(
  result: AcquireResult<C>,
): result is DecoratedAcquireResult<C> {
  // A user may have written the backend, so the result may be anything.
  const handle = result as Partial<DisposableLockHandle> | null | undefined;
  return typeof handle?.release === "function" && typeof handle[Symbol.asyncDispose] === "function";
}

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
export async function acquireHandle<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  opts: KeyOp & {
    /** Milliseconds after which the lock ends by itself. */
    ttlMs: number;
  },
): Promise<DecoratedAcquireResult<C>> {
  const result = await backend.acquire(opts);
  if (isDecorated(result)) return result;
  if ((result?.ok as unknown) === false) return result as DecoratedAcquireResult<C>;
  const { lockId } = (result ?? {}) as { lockId: string };
  if (result?.ok) releaseById(backend, lockId, opts.key);
  throw new LockError(
    "Internal",
    "Backend.acquire() must return a decorated result: use decorateAcquireResult()",
    { key: opts.key },
  );
}
