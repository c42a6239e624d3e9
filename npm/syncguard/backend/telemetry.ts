import { checkFunction, checkObject, invalid } from "../options/validation.js";
import { optionNames, warnOfUnknown } from "../options/names.js";
import { checkBackend } from "../values/arguments.js";
import { systemClock } from "../values/clock.js";
import { joined, type Observation, type Stream } from "../watching/events.js";
import { observe } from "./observe.js";
import { decorate, disposalOf } from "../holding/handle.js";
import type { WantedTerms } from "../holding/grant.js";
import { extendBy, releaseBy } from "../holding/held.js";
import { observeLeases } from "../holding/observed-leases.js";
import {
  type AcquireArguments,
  accessTo,
  internalsOf,
  type Operations,
  setInternals,
  acquireOf,
} from "../holding/internals.js";
import { runLeader } from "./lead.js";
import { createLockMethod } from "./lock.js";
import { runOnce } from "./once.js";
import { createTryLockMethod } from "./try-lock.js";
import { callQuietly } from "../watching/reports.js";
import { createReleaseAll } from "./release-all.js";
import type {
  BackendCapabilities,
  LockBackend,
  LockBackendLike,
  LockEvent,
  LockOp,
  LocksOp,
  SyncGuardBackend,
  TelemetryOptions,
} from "../values/types.js";
import { hashesOf, hashKey } from "../values/values.js";
import { attemptOf, ONE_AT_A_TIME } from "../waiting/users.js";

type Extras<C extends BackendCapabilities> = Pick<
  SyncGuardBackend<C>,
  | "lock"
  | "tryLock"
  | "lead"
  | "once"
  | "forceRelease"
  | "releaseAll"
  | "close"
  | "transport"
  | typeof Symbol.asyncDispose
>;
const OPTIONS = optionNames("withTelemetry()", ["onEvent", "includeRaw"]);

/**
 * A backend that does what `backend` does, and calls `onEvent` for each operation, including those of handles.
 *
 * Events carry hashes in place of identifiers, unless `includeRaw` allows more. They are not awaited, and errors of
 * `onEvent` or `includeRaw` do not affect the operation.
 *
 * @throws LockError `InvalidArgument` if `backend` is no backend or `onEvent` is no function
 * @example
 * ```ts
 * import { withTelemetry } from "syncguard";
 * import { createSqliteBackend } from "syncguard/sqlite";
 *
 * const observed = withTelemetry(createSqliteBackend("./locks.db"), {
 *   onEvent: ({ type, result, reason }) => console.log(type, result, reason ?? ""),
 * });
 * ```
 */
export function withTelemetry<C extends BackendCapabilities>(
  backend: SyncGuardBackend<C>,
  options: TelemetryOptions,
): SyncGuardBackend<C>;
/**
 * A backend that does what yours does, and calls `onEvent` for each operation, including those of handles.
 *
 * @throws LockError `InvalidArgument` if `backend` is no backend or `onEvent` is no function
 * @example
 * ```ts
 * import { type LockBackend, type LockBackendLike, withTelemetry } from "syncguard";
 *
 * function observed(mine: LockBackendLike): LockBackend {
 *   return withTelemetry(mine, { onEvent: (event) => console.log(event) });
 * }
 * ```
 */
export function withTelemetry<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  options: TelemetryOptions,
): LockBackend<C>;
export function withTelemetry<C extends BackendCapabilities>(
  backend: LockBackendLike<C> & Partial<Extras<C>>,
  options: TelemetryOptions,
): LockBackend<C> {
  checkBackend(backend);
  return observeBackend(backend, createEmitter(options));
}

/** A backend that does what `backend` does, and tells of each operation, of lost locks, and of the ends of waits. */
export function observeBackend<C extends BackendCapabilities>(
  backend: LockBackendLike<C> & Partial<Extras<C>>,
  stream: Stream,
): LockBackend<C> & Partial<Extras<C>> {
  const internals = internalsOf(backend);
  const { clock = systemClock, origin = backend, grants, warnings } = internals ?? {};
  /** Refuses several locks on a user's own backend, which knows nothing of them and would do something else than what is asked. */
  const refusalOf = (opts: LockOp | LocksOp | null): Promise<never> | undefined =>
    internals === undefined && (lockIdsOf(opts) ?? undefined) !== undefined
      ? Promise.reject(invalid(ONE_AT_A_TIME))
      : undefined;
  const operations: Operations<C> = {
    acquire: (opts, asked) => attemptOf(backend)(opts, asked),
    release: (opts) => refusalOf(opts) ?? backend.release(opts as LockOp),
    extend: (opts) => refusalOf(opts) ?? backend.extend(opts as LockOp & { ttlMs: number }),
    isLocked: (opts) => backend.isLocked(opts),
    lookup: (opts) => backend.lookup(opts),
    forceRelease: (key, options) => (backend as SyncGuardBackend<C>).forceRelease(key, options),
  };
  const operating = observe(operations, stream, clock, () => acquireOf(backend) !== undefined);
  /** Handles are bound to the wrapper, so that their operations are reported, too. */
  const acquire: Operations<C>["acquire"] = async (opts, asked) => {
    const terms = termsWith(stream, asked?.terms);
    const result = await operating.acquire(opts, { ...asked, terms });
    return decorate(observed, result, opts?.key, disposalOf(result));
  };
  const all: Operations<C> = { ...operating, acquire };
  const observed: LockBackend<C> & { -readonly [Name in keyof Extras<C>]?: Extras<C>[Name] } = {
    capabilities: backend.capabilities,
    acquire: (opts: AcquireArguments) => acquire(opts) as ReturnType<LockBackend<C>["acquire"]>,
    release: (opts: LockOp) => all.release(opts),
    extend: all.extend,
    isLocked: all.isLocked,
    lookup: all.lookup,
  };
  if (backend.transport) observed.transport = backend.transport;
  if (backend.lock) observed.lock = createLockMethod(() => observed);
  if (backend.tryLock) observed.tryLock = createTryLockMethod(() => observed);
  if (backend.lead)
    observed.lead = async (key, fn, options) => await runLeader(observed, key, fn, options);
  if (backend.once) {
    observed.once = async (key, options, fn) => await runOnce(observed, key, options, fn);
  }
  if (backend.forceRelease) observed.forceRelease = all.forceRelease;
  if (backend.releaseAll) observed.releaseAll = createReleaseAll(() => observed);
  if (backend.close) observed.close = backend.close;
  const dispose = backend[Symbol.asyncDispose];
  if (dispose) observed[Symbol.asyncDispose] = async () => await dispose.call(backend);
  const everybody = joined(internals?.stream, stream);
  const inner = accessTo(backend);
  const leases = observeLeases(
    {
      release: (lease, how) => releaseBy(inner, lease, how),
      extend: (lease, ttlMs, signal) => extendBy(inner, lease, ttlMs, signal),
    },
    stream,
    clock,
  );
  setInternals(observed, {
    ...{ origin, clock, operations: all, leases, stream: everybody, grants, warnings },
    inner: backend,
  });
  return observed;
}

/** The terms of an acquisition, with `stream` among those who hear of the lock. */
function termsWith(stream: Stream, terms: WantedTerms | undefined): WantedTerms {
  const outer = terms?.stream;
  return { ...terms, stream: outer === undefined ? stream : joined(stream, outer) };
}

/** The lock ids of an argument, which may be anything. */
function lockIdsOf(opts: LockOp | LocksOp | null): unknown {
  return (opts as Partial<LocksOp> | null)?.lockIds;
}

function createEmitter(options: TelemetryOptions): Stream {
  checkObject(options, "options");
  warnOfUnknown(options, OPTIONS);
  const { onEvent, includeRaw = false } = options;
  // If nobody listens, no events are made.
  const isHeard = (onEvent as unknown) !== undefined;
  if (isHeard) checkFunction(onEvent, "onEvent");

  return {
    hears: () => isHeard,
    tell(seen) {
      // If there was an attempt, that has told of the end of the wait already.
      if (!isHeard || (seen.type === "wait" && seen.attempts !== 0)) return;
      // The call is deferred, so that a slow listener does not delay the operation. A promise does that, because users' tests may have
      // replaced `queueMicrotask` by a fake one before this module was loaded.
      void Promise.resolve().then(() => {
        callQuietly(() => onEvent(createEvent(seen, includeRaw)));
      });
    },
  };
}

function createEvent(seen: Observation, includeRaw: TelemetryOptions["includeRaw"]): LockEvent {
  const { type: what, result, key, keys, lockId, error, reason: seenReason, ...more } = seen;
  delete more.durationMs;
  delete more.contended;
  const type = what === "wait" ? "acquire" : what;
  const isLate = what === "wait" && (error as { code?: unknown })?.code === "AcquisitionTimeout";
  const reason = isLate ? "locked" : seenReason;
  const event: LockEvent = { type, result };
  if (reason !== undefined) event.reason = reason;
  Object.assign(event, more);
  // Callers may pass anything as an identifier. An identifier that is no string was refused, and has no hash.
  if (typeof key === "string") event.keyHash = hashKey(key);
  if (keys !== undefined) Object.assign(event, hashesOf(keys));
  // An acquisition is known by its key. The lock id that it was given is only in events with raw identifiers.
  if (typeof lockId === "string" && type !== "acquire") event.lockIdHash = hashKey(lockId);
  if (!allowsRaw(includeRaw, event)) return event;
  if (typeof key === "string") event.key = key;
  if (keys !== undefined) event.keys = keys;
  if (typeof lockId === "string") event.lockId = lockId;
  return event;
}

function allowsRaw(includeRaw: TelemetryOptions["includeRaw"], event: LockEvent): boolean {
  if (typeof includeRaw !== "function") return includeRaw === true;
  try {
    const allowed: unknown = includeRaw(event);
    // Only `true` counts: a promise does not.
    return allowed === true;
  } catch {
    return false;
  }
}
