/** What this package knows of a backend beside its methods: of its own, and of the wrappers that it makes around any. */

import type { Failure, LockLabels } from "../native/outcome.js";
import type { Store } from "../native/store.js";
import type { Wait } from "../native/wait.js";
import type { Stream } from "../watching/events.js";
import type { Clock } from "../values/clock.js";
import type { ClockSkew } from "../watching/clock-skew.js";
import type { WantedTerms } from "./grant.js";
import type { Grants } from "./grants.js";
import type { Lease } from "./lease.js";
import { UsersLeases } from "./users-leases.js";
import type { LockTarget } from "../values/claims.js";
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

/** What `acquire()` is given: a key, or claims. */
export type AcquireArguments = Readonly<
  LockLabels & {
    key: string;
    slots?: number | undefined;
    claims?: Claims | undefined;
    ttlMs: number;
    signal?: AbortSignal | undefined;
    autoExtend?: AutoExtend | undefined;
  }
>;
/** What this package itself asks for beside that. */
export type Asked = {
  /** Waits for the lock as this says, if the backend is one of this package; others try once for it. */
  readonly wait?: Wait | undefined;
  /** The claims, which were read already. */
  readonly target?: LockTarget | undefined;
  /** The period for which something is to be done; checked. */
  readonly due?: string | undefined;
  /** How the lock is to be held. */
  readonly terms?: WantedTerms | undefined;
};
export type Extending = Pick<LockBackend, "extend">;
export type Releasing = Pick<LockBackend, "release">;

/** How a lock is released for its holder. */
export type HowToRelease = {
  readonly signal?: AbortSignal | undefined;
  /** The period for which something was done under it: the store notes that in the same step. */
  readonly due?: string | undefined;
  /** For how many milliseconds it is to be held still: then it ends, and is not freed before. */
  readonly holdMs?: number | undefined;
};

/** Releases and extends locks for their holders: what is known of a lock goes down with it, and is not looked up again. */
export interface LeaseOperations {
  /** Its end must have begun. What the store has found is noted in the lease. */
  release(lease: Lease, how: HowToRelease): Promise<ReleaseResult>;
  extend(lease: Lease, ttlMs: number, signal: AbortSignal | undefined): Promise<ExtendResult>;
}

/** A backend as the holders of its locks use it. */
export type HolderAccess = {
  /** Its methods are looked at each time: whoever has replaced one wants it to be called. */
  readonly backend: Releasing & Extending;
  /** Those that it had at first, which `leases` stands for. */
  readonly release: unknown;
  readonly extend: unknown;
  readonly leases: LeaseOperations;
};

/** The operations of a backend, with what its users do not see of them. */
export type Operations<C extends BackendCapabilities> = {
  acquire: (opts: AcquireArguments, asked?: Asked) => Promise<AcquireResult<C>>;
  release: (opts: LockOp | LocksOp) => Promise<ReleaseResult>;
  extend: (opts: (LockOp | LocksOp) & { ttlMs: number }) => Promise<ExtendResult>;
  isLocked: (opts: KeyOp) => Promise<boolean>;
  lookup: (opts: KeyLookup | OwnershipLookup) => Promise<LockInfo<C> | null>;
  forceRelease: SyncGuardBackend["forceRelease"];
};

/**
 * Runs an operation on a backend's own store, as the backend would: with its checks before, with the key in errors, and
 * `close()` waits for it.
 */
export type DirectAccess = <T>(
  key: string,
  signal: AbortSignal | undefined,
  operation: (store: Store) => Promise<T | Failure>,
) => Promise<T>;

/** A backend that has them knows the option `autoExtend`; the locks of other backends are extended from outside. */
export type Internals<C extends BackendCapabilities = BackendCapabilities> = {
  /** Stands for the backend and its wrappers. */
  readonly origin: object;
  readonly clock: Clock;
  readonly operations: Operations<C>;
  readonly leases: LeaseOperations;
  /** Those who observe it. */
  readonly stream: Stream;
  /** The locks that it has granted, if it is one of this package: then it checks keys, and waits, itself. */
  readonly grants: Grants | undefined;
  /** Hears of refusals, if its clients' own clocks decide. */
  readonly clockSkew?: ClockSkew | undefined;
  /** Those who wait for its locks, by key: how many, and since when of the clock's `elapsed()`; of the backend itself. */
  readonly queues?: () => readonly [string, { readonly count: number; readonly sinceMs: number }][];
  /** How to reach the addon's store, if the backend itself is on one. */
  readonly direct?: DirectAccess;
};

/** The internals, and the methods by which users see it: whoever puts another one in its place wants it to be called. */
type BoundInternals = Internals & HolderAccess & Readonly<Record<"acquire" | "lookup", unknown>>;

/** Not enumerable, so that copies of a backend, which may have other methods, have none. */
const INTERNALS: unique symbol = Symbol("internals");

/** Gives a backend whose methods are complete its internals. */
export function setInternals<C extends BackendCapabilities>(
  backend: LockBackend<C>,
  internals: Internals<C>,
): HolderAccess {
  const { acquire, release, extend, lookup } = backend as unknown as Record<string, unknown>;
  const value = { ...internals, acquire, release, extend, lookup, backend };
  Object.defineProperty(backend, INTERNALS, { value });
  return value;
}

/** How the holders of its locks use a backend, whoever has written it. */
export function accessTo(backend: Releasing & Extending): HolderAccess {
  const bound = boundInternals(backend);
  if (bound !== undefined) return bound;
  const { release, extend } = backend as unknown as Record<string, unknown>;
  return { backend, release, extend, leases: new UsersLeases(backend) };
}

/** The internals of a backend; none of one of users' own, and of what stands before a backend. */
export function internalsOf(backend: object): Internals | undefined {
  return boundInternals(backend);
}

function boundInternals(backend: object): BoundInternals | undefined {
  const bound = (backend as { readonly [INTERNALS]?: BoundInternals })[INTERNALS];
  return bound?.backend === backend ? bound : undefined;
}

/** How to acquire a lock of a backend of this package, or of a wrapper. */
export function acquireOf<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
): Operations<C>["acquire"] | undefined {
  const bound = boundInternals(backend);
  if (bound === undefined || bound.acquire !== backend.acquire) return undefined;
  return bound.operations.acquire;
}

/**
 * How to reach the store of a backend. `undefined` for a wrapper such as that of `withTelemetry()`, for a copy, and for a
 * backend whose methods were replaced, because these have to see each operation.
 */
export function directAccess(backend: LockBackend): DirectAccess | undefined {
  const bound = boundInternals(backend);
  const { release, lookup } = backend as unknown as Record<string, unknown>;
  return bound?.release === release && bound?.lookup === lookup ? bound?.direct : undefined;
}
