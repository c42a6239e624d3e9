/**
 * The public interface of a backend, around a store.
 *
 * This room knows what the backends of all stores do: an operation per file, `lock()`, `lead()`, `once()`, telemetry.
 * It must not know one store from another. What differs is given when a backend is created.
 */

import type { Store } from "../native/store.js";
import { acquire } from "./acquire.js";
import type { DisposalOptions } from "../values/arguments.js";
import type { HeartbeatOptions } from "../values/auto-extend.js";
import { publisher } from "../watching/channels.js";
import { type Clock, systemClock } from "../values/clock.js";
import type { StoreWarnings } from "../watching/store-warnings.js";
import { closing } from "./closing.js";
import type { BackendContext, LockStore, StoreHeartbeats } from "./context.js";
import { directOn } from "./direct.js";
import { observe } from "./observe.js";
import { extend } from "./extend.js";
import type { Terms } from "../holding/grant.js";
import { Grants } from "../holding/grants.js";
import { readDisposal } from "../holding/handle.js";
import {
  type AcquireArguments,
  type DirectAccess,
  type Operations,
  setInternals,
} from "../holding/internals.js";
import { runLeader } from "./lead.js";
import type { Lease } from "../holding/lease.js";
import { observeLeases } from "../holding/observed-leases.js";
import { StoreLeases } from "../holding/store-leases.js";
import { createLockMethod } from "./lock.js";
import { forceRelease, isLocked, lookup } from "./look.js";
import { runOnce } from "./once.js";
import { release } from "./release.js";
import { createReleaseAll } from "./release-all.js";
import { createTryLockMethod } from "./try-lock.js";
import type { BackendCapabilities, SyncGuardBackend } from "../values/types.js";
import type { BackendTransport } from "../options/backend-transport.js";
import { Waiters } from "../waiting/waiters.js";

/** Makes the members that only handles of one store have. */
export type StoreMembersOf = (lease: Lease, direct: DirectAccess) => object;

/** The parts of a backend that differ between the addon's stores and others. */
export type BackendParts = {
  readonly clock?: Clock;
  /** Makes the heartbeats of a lock, if the store extends locks itself. */
  readonly heartbeats?: (options: HeartbeatOptions) => StoreHeartbeats;
  /** Asks the store after locks without heartbeats once another server may have taken over. */
  readonly looks?: Terms["looks"];
  /** The addon's store, for operations that are no methods of a backend. */
  readonly direct?: Store;
  readonly transport?: BackendTransport | undefined;
  /** Makes the members that only handles of this store have. */
  readonly members?: StoreMembersOf | undefined;
  /** Hears of what the store warns of. */
  readonly warnings?: StoreWarnings | undefined;
};

/**
 * Puts the public interface around a store. Asynchronous methods reject and never throw. They find wrong arguments before the
 * first `await`, so the promise is already rejected when the caller gets it.
 */
export function createBackendOn<C extends BackendCapabilities>(
  store: LockStore,
  options: DisposalOptions,
  parts: BackendParts,
): SyncGuardBackend<C> {
  const { clock = systemClock, transport, warnings } = parts;
  const capabilities: Readonly<C> = Object.freeze({ ...store.capabilities }) as never;
  const stream = publisher(store.capabilities.backend, transport);
  const grants = new Grants(clock, () => store.refuseWaiters());
  const direct = parts.direct && directOn(grants, parts.direct);
  const waiters = new Waiters();
  const leases = new StoreLeases(store, grants, waiters);
  const { looks } = parts;
  const context: BackendContext = {
    ...{ store, clock, capabilities, grants, waiters, leases },
    terms: {
      ...readDisposal(options),
      clock,
      stream,
      looks,
      minHoldMs: 0,
      ...membersOn(parts, direct),
    },
    createHeartbeats: parts.heartbeats,
    access: () => access,
  };
  const operations = observe(operationsOn<C>(context), stream, clock, () => true);
  const close = closing(store, grants);
  const backend: SyncGuardBackend<C> = {
    capabilities,
    ...(transport === undefined ? {} : { transport }),
    acquire: ((opts: AcquireArguments) =>
      operations.acquire(opts)) as SyncGuardBackend<C>["acquire"],
    release: operations.release,
    extend: operations.extend,
    isLocked: operations.isLocked,
    lookup: operations.lookup,
    forceRelease: operations.forceRelease,
    lock: createLockMethod(() => backend),
    tryLock: createTryLockMethod(() => backend),
    lead: async (key, fn, options) => await runLeader(backend, key, fn, options),
    once: async (key, options, fn) => await runOnce(backend, key, options, fn),
    releaseAll: createReleaseAll(() => backend),
    close,
    [Symbol.asyncDispose]: close,
  };
  const queues = () => waiters.queues();
  const internals = {
    ...{ origin: backend, clock, operations, stream, grants, warnings, queues },
    leases: observeLeases(leases, stream, clock),
  };
  const access = setInternals(backend, direct === undefined ? internals : { ...internals, direct });
  return backend;
}

/** The operations, before observers are told of them. */
function operationsOn<C extends BackendCapabilities>(context: BackendContext): Operations<C> {
  return {
    acquire: (opts, asked) => acquire<C>(context, opts, asked),
    release: (opts) => release(context, opts),
    extend: (opts) => extend(context, opts),
    isLocked: (opts) => isLocked(context, opts),
    lookup: (opts) => lookup<C>(context, opts),
    forceRelease: (key, options) => forceRelease(context, key, options),
  };
}

function membersOn(
  { members }: BackendParts,
  direct: DirectAccess | undefined,
): Pick<Terms, "membersOf"> {
  if (members === undefined || direct === undefined) return {};
  return { membersOf: (lease) => members(lease, direct) };
}
