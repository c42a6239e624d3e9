import { checkFunction, checkObject } from "../options/validation.js";
import { checksKeys, markChecksKeys } from "./waiting.js";
import { checkBackend } from "./arguments.js";
import { decorateAcquireResult, disposalOptions } from "./handle.js";
import { createLockMethod } from "./lock.js";
import { failureReason } from "./mutation.js";
import { callQuietly } from "./release.js";
import type {
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
type Ids = { key?: string | undefined; lockId?: string | undefined };
type Emit = (
  type: LockEvent["type"],
  ids: Ids,
  result: LockEvent["result"],
  reason?: LockEvent["reason"],
) => void;

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
      emit(type, ids ?? {}, "fail");
      throw error;
    }
    report(result);
    return result;
  };

  const reportMutation = (
    type: "release" | "extend",
    ids: Ids,
    result: ReleaseResult | ExtendResult,
  ): void => {
    if (result.ok) emit(type, ids, "ok");
    else emit(type, ids, "fail", failureReason(result));
  };

  const observed: LockBackend<C> & Partial<Extras<C>> = {
    capabilities: backend.capabilities,

    acquire: async (opts) => {
      const result = await observe(
        "acquire",
        opts,
        () => backend.acquire(opts),
        (outcome) => {
          if (outcome.ok) emit("acquire", { key: opts.key, lockId: outcome.lockId }, "ok");
          else emit("acquire", opts, "fail", "locked");
        },
      );
      // Bound to this wrapper, so that the operations of the handle are reported too.
      const disposal = disposalOptions(result);
      return decorateAcquireResult(
        observed,
        result,
        opts.key,
        disposal?.onReleaseError,
        disposal?.disposeTimeoutMs,
      );
    },

    release: async (opts) =>
      await observe(
        "release",
        opts,
        () => backend.release(opts),
        (result) => reportMutation("release", opts, result),
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
  return checksKeys(backend) ? markChecksKeys(observed) : observed;
}

function createEmitter(options: TelemetryOptions): Emit {
  checkObject(options, "options");
  const { onEvent, includeRaw = false } = options;
  // Without a listener, nothing is computed.
  if ((onEvent as unknown) === undefined) return () => undefined;
  checkFunction(onEvent, "onEvent");

  return (type, ids, result, reason) => {
    const rest: Partial<LockEvent> = reason === undefined ? { result } : { result, reason };
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
