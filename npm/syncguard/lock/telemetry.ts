import { checkFunction, checkObject } from "../options/validation.js";
import { waitAs, waitingOn } from "./turns.js";
import { attemptOf } from "./waiting.js";
import { checkBackend } from "./arguments.js";
import { isExtending, markExtending, readAutoExtend } from "./auto-extend.js";
import { decorateAcquireResult, disposalOptions } from "./handle.js";
import { Handle, type HeldReport } from "./held.js";
import { keep } from "./keeping.js";
import { createLockMethod } from "./lock.js";
import { failureReason } from "./mutation.js";
import { heldReport, markObserved } from "./observed.js";
import { callQuietly } from "./release.js";
import type {
  AutoExtend,
  BackendCapabilities,
  ExtendResult,
  KeyLookup,
  LockBackend,
  LockBackendLike,
  LockEvent,
  OwnershipLookup,
  ReleaseResult,
  SyncGuardBackend,
  TelemetryOptions,
} from "./types.js";
import { hashKey } from "./values.js";

type Extras<C extends BackendCapabilities> = Pick<
  SyncGuardBackend<C>,
  "lock" | "forceRelease" | "close" | typeof Symbol.asyncDispose
>;
type AcquireArguments = Parameters<LockBackend["acquire"]>[0] & {
  autoExtend?: AutoExtend | undefined;
};
type Ids = { key?: string | undefined; lockId?: string | undefined };
/** What an event says besides. */
type More = Omit<Partial<LockEvent>, "reason"> & { reason?: LockEvent["reason"] | undefined };
type Emit = (type: LockEvent["type"], ids: Ids, result: LockEvent["result"], more?: More) => void;

/**
 * A backend that does what `backend` does, and calls `onEvent` for each operation, including those of handles.
 *
 * Events carry hashes in place of identifiers, unless `includeRaw` allows more. They are not awaited, and errors of
 * `onEvent` or `includeRaw` do not affect the operation.
 */
export function withTelemetry<C extends BackendCapabilities>(
  backend: SyncGuardBackend<C>,
  options: TelemetryOptions,
): SyncGuardBackend<C>;
/** The same for a backend of your own. */
export function withTelemetry<C extends BackendCapabilities>(
  backend: LockBackendLike<C>,
  options: TelemetryOptions,
): LockBackend<C>;
export function withTelemetry<C extends BackendCapabilities>(
  backend: LockBackendLike<C> & Partial<Extras<C>>,
  options: TelemetryOptions,
): LockBackend<C> {
  checkBackend(backend);
  const emit = createEmitter(options);

  /** Runs an operation and reports it. An error is reported as a failure without a reason. */
  const observe = async <Result>(
    type: LockEvent["type"],
    ids: Ids | null | undefined,
    operation: () => Promise<Result>,
    report: (result: Result) => void,
  ): Promise<Result> => {
    let result: Result;
    try {
      result = await operation();
    } catch (error) {
      emit(type, ids ?? {}, "fail", type === "acquire" ? waited(ids) : undefined);
      throw error;
    }
    report(result);
    return result;
  };

  const reportMutation = (
    type: "release" | "extend",
    ids: Ids,
    result: ReleaseResult | ExtendResult,
    held?: HeldReport,
  ): void => {
    const reason = result.ok ? undefined : failureReason(result);
    emit(type, ids, result.ok ? "ok" : "fail", { reason, ...held });
  };

  const observed: LockBackend<C> & Partial<Extras<C>> = {
    capabilities: backend.capabilities,

    acquire: async (opts: AcquireArguments) => {
      const startedMs = performance.now();
      const { key, ttlMs } = opts ?? {};
      // A user's backend does not know the option, and its lock is extended from here. Those are no operations of users,
      // and are counted instead of reported.
      const isOwn = isExtending(backend);
      const autoExtend = isOwn ? undefined : readAutoExtend(opts?.autoExtend, ttlMs);
      const result = await observe(
        "acquire",
        opts,
        () => backend.acquire(isOwn ? opts : withoutAutoExtend(opts)),
        (outcome) => {
          if (outcome.ok) emit("acquire", { key, lockId: outcome.lockId }, "ok", waited(opts));
          else emit("acquire", opts, "fail", { reason: "locked", ...waited(opts) });
        },
      );
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
        const ids = { key, lockId: held.lockId };
        Handle.onLost(held, () => emit("lost", ids, "fail", Handle.report(held)));
        if (autoExtend !== undefined) keep(backend, held, key, ttlMs, startedMs, autoExtend);
      }
      return held;
    },

    release: async (opts) =>
      await observe(
        "release",
        opts,
        () => backend.release(opts),
        (result) => reportMutation("release", opts, result, heldReport(opts)),
      ),

    extend: async (opts) =>
      await observe(
        "extend",
        opts,
        () => backend.extend(opts),
        (result) => reportMutation("extend", opts, result),
      ),

    isLocked: async (opts) =>
      await observe(
        "isLocked",
        opts,
        () => backend.isLocked(opts),
        (locked) => emit("isLocked", opts, locked ? "ok" : "fail"),
      ),

    lookup: async (opts: KeyLookup | OwnershipLookup) =>
      await observe(
        "lookup",
        opts,
        () => backend.lookup(opts),
        (info) => emit("lookup", opts, info ? "ok" : "fail"),
      ),
  };
  if (backend.lock) observed.lock = createLockMethod(() => observed);
  if (backend.forceRelease) observed.forceRelease = backend.forceRelease;
  if (backend.close) observed.close = backend.close;
  const dispose = backend[Symbol.asyncDispose];
  if (dispose) observed[Symbol.asyncDispose] = async () => await dispose.call(backend);
  markObserved(markExtending(observed));
  return waitAs(observed, waitingOn(backend));
}

/** What an event says of the waiting that an attempt is part of: nothing without `lock()`. */
function waited(opts: object | null | undefined): More {
  const one = attemptOf(opts ?? {});
  if (one === undefined) return {};
  const { startMs, attempts, wakeups } = one;
  return { waitMs: Date.now() - startMs, attempts, wakeups };
}

/** What a backend that does not extend locks itself is given. */
function withoutAutoExtend(opts: AcquireArguments): AcquireArguments {
  if (opts?.autoExtend === undefined) return opts;
  const rest = { ...opts };
  delete rest.autoExtend;
  return rest;
}

function createEmitter(options: TelemetryOptions): Emit {
  checkObject(options, "options");
  const { onEvent, includeRaw = false } = options;
  // Without a listener, nothing is computed.
  if ((onEvent as unknown) === undefined) return () => undefined;
  checkFunction(onEvent, "onEvent");

  return (type, ids, result, more) => {
    const { reason, ...others } = more ?? {};
    const rest: Partial<LockEvent> = { result, ...others };
    if (reason !== undefined) rest.reason = reason;
    // Deferred, so that a slow listener does not delay the operation.
    queueMicrotask(() => {
      callQuietly(() => onEvent(createEvent(type, ids, rest, includeRaw)));
    });
  };
}

function createEvent(
  type: LockEvent["type"],
  { key, lockId }: Ids,
  rest: Partial<LockEvent>,
  includeRaw: TelemetryOptions["includeRaw"],
): LockEvent {
  const event = { type, ...rest } as LockEvent;
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
