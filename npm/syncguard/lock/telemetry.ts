import type { Wait } from "../native/wait.js";
import { checkFunction, checkObject } from "../options/validation.js";
import { optionNames, warnOfUnknown } from "../options/names.js";
import { checkBackend } from "./arguments.js";
import { readAutoExtend } from "./auto-extend.js";
import { decorateAcquireResult, disposalOptions } from "./handle.js";
import { Handle } from "./held.js";
import { keep } from "./keeping.js";
import { type Known, knownOf, register } from "./known.js";
import { createLockMethod } from "./lock.js";
import {
  type Observation,
  type Observer,
  observedForce,
  observedOperations,
  observing,
  reports,
} from "./observation.js";
import { callQuietly } from "./reports.js";
import { createReleaseAll } from "./release-all.js";
import type {
  AcquireResult,
  AutoExtend,
  BackendCapabilities,
  DecoratedAcquireResult,
  LockBackend,
  LockBackendLike,
  LockEvent,
  SyncGuardBackend,
  TelemetryOptions,
} from "./types.js";
import { hashKey } from "./values.js";

type Extras<C extends BackendCapabilities> = Pick<
  SyncGuardBackend<C>,
  "lock" | "forceRelease" | "releaseAll" | "close" | "transport" | typeof Symbol.asyncDispose
>;
const OPTIONS = optionNames("withTelemetry()", ["onEvent", "includeRaw"]);

type AcquireArguments = Parameters<LockBackend["acquire"]>[0] & {
  autoExtend?: AutoExtend | undefined;
};

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
  tell: Observer,
  runHeld?: Known["runHeld"],
): LockBackend<C> & Partial<Extras<C>> {
  const known = knownOf(backend);
  const { clock } = known;

  const take = async (opts: AcquireArguments, wait?: Wait): Promise<DecoratedAcquireResult<C>> => {
    const startedMs = clock.elapsed();
    const { key, ttlMs } = opts ?? {};
    // A user's backend does not know the option, and its lock is extended from here. Those are no operations of users,
    // and are counted instead of reported.
    const isOwn = known.extends;
    const autoExtend = isOwn ? undefined : readAutoExtend(opts?.autoExtend, ttlMs);
    const start = (): Promise<AcquireResult<C>> => {
      const args = isOwn ? opts : withoutAutoExtend(opts);
      const isAsOurs = backend.acquire === known.acquire && known.take !== undefined;
      return isAsOurs ? known.take(args, wait) : backend.acquire(args);
    };
    // Whoever has waited tells of it in the end.
    const isWaiting = wait !== undefined && known.isOurs;
    const result = isWaiting
      ? await start()
      : await observing(tell, clock, "acquire", opts, start, reports.acquire, wait);
    // Bound to this wrapper, so that the operations of the handle are reported too.
    const disposal = disposalOptions(result);
    const held = decorateAcquireResult(
      observed,
      result,
      key,
      disposal?.onReleaseError,
      disposal?.disposeTimeoutMs,
    );
    if (Handle.is(held)) {
      const { lockId } = held;
      Handle.onLost(held, (report) => {
        tell({ type: "lost", result: "fail", key, lockId, ...report });
      });
      if (autoExtend !== undefined) keep(clock, backend, held, key, ttlMs, startedMs, autoExtend);
    }
    return held;
  };

  const observed: LockBackend<C> & { -readonly [Name in keyof Extras<C>]?: Extras<C>[Name] } = {
    capabilities: backend.capabilities,
    acquire: (opts: AcquireArguments) => take(opts),
    ...observedOperations(backend, tell, clock),
  };
  if (backend.transport) observed.transport = backend.transport;
  if (backend.lock) observed.lock = createLockMethod(() => observed);
  const { forceRelease } = backend;
  if (forceRelease) {
    const force: typeof forceRelease = (key, options) => forceRelease.call(backend, key, options);
    observed.forceRelease = observedForce(force, tell, clock);
  }
  if (backend.releaseAll) observed.releaseAll = createReleaseAll(() => observed);
  if (backend.close) observed.close = backend.close;
  const dispose = backend[Symbol.asyncDispose];
  if (dispose) observed[Symbol.asyncDispose] = async () => await dispose.call(backend);
  const waited: Observer = (seen) => {
    known.waited?.(seen);
    tell(seen);
  };
  return register(observed, {
    ...known,
    extends: true,
    reports: true,
    acquire: observed.acquire,
    take: take,
    waited,
    runHeld: runHeld ?? known.runHeld,
  });
}

/** What a backend that does not extend locks itself is given. */
function withoutAutoExtend(opts: AcquireArguments): AcquireArguments {
  if (opts?.autoExtend === undefined) return opts;
  const rest = { ...opts };
  delete rest.autoExtend;
  return rest;
}

function createEmitter(options: TelemetryOptions): Observer {
  checkObject(options, "options");
  warnOfUnknown(options, OPTIONS);
  const { onEvent, includeRaw = false } = options;
  // Without a listener, nothing is computed.
  if ((onEvent as unknown) === undefined) return () => undefined;
  checkFunction(onEvent, "onEvent");

  return (seen) => {
    // An attempt has told of the end of a wait, unless there was none.
    if (seen.type === "wait" && seen.attempts !== 0) return;
    // Deferred, so that a slow listener does not delay the operation. By a promise and not `queueMicrotask`, which users' tests
    // may have replaced by a fake one, before this module was loaded.
    void Promise.resolve().then(() => {
      callQuietly(() => onEvent(createEvent(seen, includeRaw)));
    });
  };
}

function createEvent(seen: Observation, includeRaw: TelemetryOptions["includeRaw"]): LockEvent {
  const { type: what, result, key, lockId, error, reason: given, ...more } = seen;
  delete more.durationMs;
  delete more.contended;
  const type = what === "wait" ? "acquire" : what;
  const isLate = what === "wait" && (error as { code?: unknown })?.code === "AcquisitionTimeout";
  const reason = isLate ? "locked" : given;
  const event: LockEvent = { type, result };
  if (reason !== undefined) event.reason = reason;
  Object.assign(event, more);
  // Callers may pass anything as an identifier. What is not a string was refused, and has no hash.
  if (typeof key === "string") event.keyHash = hashKey(key);
  // An acquisition is identified by its key. The lock id that it was given is only in events with raw identifiers.
  if (typeof lockId === "string" && type !== "acquire") event.lockIdHash = hashKey(lockId);
  if (!allowsRaw(includeRaw, event)) return event;
  if (typeof key === "string") event.key = key;
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
