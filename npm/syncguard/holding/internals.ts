/** Keeps what this package knows of a backend beside its methods. Its own backends have internals, and the wrappers that it makes around any backend. */

import type { Failure, LockLabels } from "../native/outcome.js";
import type { Store } from "../native/store.js";
import type { Wait } from "../values/wait.js";
import type { Stream } from "../watching/events.js";
import type { Clock } from "../values/clock.js";
import type { StoreWarnings } from "../watching/store-warnings.js";
import type { WantedTerms } from "./grant.js";
import type { Grants } from "./grants.js";
import type { Lease } from "./lease.js";
import { UsersLeases } from "./users-leases.js";
import type { BesideKey, LockTarget } from "../values/claims.js";
import type {
  AcquireResult,
  AutoExtend,
  BackendCapabilities,
  Claims,
  ExtendResult,
  KeyLookup,
  KeyOp,
  LockBackend,
  LockBackendLike,
  LockInfo,
  LockOp,
  LocksOp,
  OwnershipLookup,
  ReleaseResult,
  SyncGuardBackend,
} from "../values/types.js";

/** The argument of `acquire()`, with a key or with claims. */
export type AcquireArguments = Readonly<
  LockLabels &
    BesideKey & {
      key: string;
      claims?: Claims | undefined;
      ttlMs: number;
      signal?: AbortSignal | undefined;
      autoExtend?: AutoExtend | undefined;
    }
>;
/** What only this package itself can ask `acquire()` for. */
export type Asked = {
  /** How to wait for the lock. Only backends of this package do so; others try once. */
  readonly wait?: Wait | undefined;
  /** The claims, if somebody has read them already. */
  readonly target?: LockTarget | undefined;
  /** The period for which something is to be done. It has been checked. */
  readonly due?: string | undefined;
  /** How the lock is to be held. */
  readonly terms?: WantedTerms | undefined;
};
export type Extending = Pick<LockBackend, "extend">;
export type Releasing = Pick<LockBackend, "release">;

/** How a lock is released for its holder. */
export type HowToRelease = {
  readonly signal?: AbortSignal | undefined;
  /** The period for which something was done under the lock. The store notes that in the step that releases it. */
  readonly due?: string | undefined;
  /** If given, the lock is not freed, but ends after so many milliseconds. */
  readonly holdMs?: number | undefined;
};

/** Releases and extends locks for their holders. The lease goes down with the call, so that nobody has to look it up again. */
export interface LeaseOperations {
  /** Releases a lock whose lease has begun its end, and notes in the lease what the store has found. */
  release(lease: Lease, how: HowToRelease): Promise<ReleaseResult>;
  extend(lease: Lease, ttlMs: number, signal: AbortSignal | undefined): Promise<ExtendResult>;
}

/** A backend as the holders of its locks use it. */
export type HolderAccess = {
  /** The backend itself. If a user has replaced one of its methods, that method is called, so each call compares them. */
  readonly backend: Releasing & Extending;
  /** The `release` that the backend was made with. While the backend has this one, `leases` releases its locks. */
  readonly release: unknown;
  /** The `extend` that the backend was made with. While the backend has this one, `leases` extends its locks. */
  readonly extend: unknown;
  readonly leases: LeaseOperations;
};

/** The operations of a backend, with the arguments that its users do not see. */
export type Operations<C extends BackendCapabilities> = {
  acquire: (opts: AcquireArguments, asked?: Asked) => Promise<AcquireResult<C>>;
  release: (opts: LockOp | LocksOp) => Promise<ReleaseResult>;
  extend: (opts: (LockOp | LocksOp) & { ttlMs: number }) => Promise<ExtendResult>;
  isLocked: (opts: KeyOp) => Promise<boolean>;
  lookup: (opts: KeyLookup | OwnershipLookup) => Promise<LockInfo<C> | null>;
  forceRelease: SyncGuardBackend["forceRelease"];
};

/**
 * Runs an operation on the store of a backend as if it were the backend's own: the same checks come first, errors have the key,
 * and `close()` waits for it.
 */
export type DirectAccess = <T>(
  key: string,
  signal: AbortSignal | undefined,
  operation: (store: Store) => Promise<T | Failure>,
) => Promise<T>;

/** A backend that has internals knows the option `autoExtend`. The locks of other backends are extended from outside. */
export type Internals<C extends BackendCapabilities = BackendCapabilities> = {
  /** One object for a backend and all its wrappers, by which they can be recognised. */
  readonly origin: object;
  readonly clock: Clock;
  readonly operations: Operations<C>;
  readonly leases: LeaseOperations;
  /** Carries what observers of the backend hear. */
  readonly stream: Stream;
  /** The locks that it has granted. Only backends of this package have them, and only these check keys and wait by themselves. */
  readonly grants: Grants | undefined;
  /** Hears of what the store warns of, where that can be. */
  readonly warnings?: StoreWarnings | undefined;
  /** For each key how many wait, and since when by the clock's `elapsed()`. Wrappers do not have it. */
  readonly queues?: () => readonly [string, { readonly count: number; readonly sinceMs: number }][];
  /** The backend that a wrapper stands before. */
  readonly inner?: LockBackendLike;
  /** Reaches the addon's store. Wrappers do not have it, nor backends on other stores. */
  readonly direct?: DirectAccess;
};

/** The internals with the methods that the backend was made with, so that a method that a user has replaced is noticed and called. */
type BoundInternals = Internals & HolderAccess & Readonly<Record<"acquire" | "lookup", unknown>>;

/** The property is not enumerable, so that a copy of a backend, which may have other methods, has no internals. */
const INTERNALS: unique symbol = Symbol("internals");

/** Gives a backend its internals, once it has all its methods. */
export function setInternals<C extends BackendCapabilities>(
  backend: LockBackend<C>,
  internals: Internals<C>,
): HolderAccess {
  const { acquire, release, extend, lookup } = backend as unknown as Record<string, unknown>;
  const value = { ...internals, acquire, release, extend, lookup, backend };
  Object.defineProperty(backend, INTERNALS, { value });
  return value;
}

/** How holders of locks use a backend, be it of this package or a user's own. */
export function accessTo(backend: Releasing & Extending): HolderAccess {
  const bound = internalsOf(backend);
  if (bound !== undefined) return bound;
  const { release, extend } = backend as unknown as Record<string, unknown>;
  return { backend, release, extend, leases: new UsersLeases(backend) };
}

/** The internals of a backend. A user's own backend has none, nor has an object that inherits from a backend or stands before it. */
export function internalsOf(backend: object): BoundInternals | undefined {
  const bound = (backend as { readonly [INTERNALS]?: BoundInternals })[INTERNALS];
  return bound?.backend === backend ? bound : undefined;
}

/** How to ask a backend of this package or a wrapper for a lock. `undefined` for others, and where a user has replaced `acquire`. */
export function operationOf<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
): Operations<C>["acquire"] | undefined {
  const bound = internalsOf(backend);
  if (bound === undefined || bound.acquire !== backend.acquire) return undefined;
  return bound.operations.acquire;
}

/**
 * How to acquire a lock from a backend that waits by itself and knows all that can be asked for: one of this package, also behind wrappers.
 * `undefined` for others, and where a user has replaced the `acquire` of one of them.
 */
export function acquireOf<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
): Operations<C>["acquire"] | undefined {
  const inner = internalsOf(backend)?.inner;
  return inner === undefined || acquireOf(inner) !== undefined ? operationOf(backend) : undefined;
}

/**
 * How to reach the store of a backend. `undefined` for a wrapper such as that of `withTelemetry()`, for a copy, and for a backend
 * whose methods a user has replaced, because wrappers and such methods have to see each operation.
 */
export function directAccess(backend: LockBackend): DirectAccess | undefined {
  const bound = internalsOf(backend);
  const { release, lookup } = backend as unknown as Record<string, unknown>;
  return bound?.release === release && bound?.lookup === lookup ? bound?.direct : undefined;
}
