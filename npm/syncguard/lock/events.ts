/** What happens to locks, as a stream of events. Telemetry, diagnostics channels, metrics and spans are views of it. */

import type { LockError } from "../native/errors.js";
import type { Wait } from "../native/wait.js";
import type { LockTarget } from "./claims.js";
import type { Clock } from "./clock.js";
import type { Operations } from "./internals.js";
import { failureReason, goneLock } from "./mutation.js";
import type { BackendCapabilities, ExtendResult, LockEvent, ReleaseResult } from "./types.js";

/** One operation, the loss of a lock, or the end of a wait for a lock. It has raw identifiers. */
export type Observation = {
  readonly type: LockEvent["type"] | "wait";
  readonly result: LockEvent["result"];
  key?: string | undefined;
  /** Of several locks, in place of the key. */
  keys?: readonly string[] | undefined;
  lockId?: string | undefined;
  reason?: LockEvent["reason"] | undefined;
  /** What was thrown. */
  error?: unknown;
  /** How long the operation took. */
  durationMs?: number | undefined;
  /** How many attempts have found the lock held, where this tells of several. */
  contended?: number;
} & Pick<
  LockEvent,
  "claims" | "waitMs" | "attempts" | "wakeups" | "heldMs" | "extensions" | "lost"
>;

/** How a lock was held, when it is released by its handle, or lost. */
export type LeaseReport = { heldMs: number; extensions?: number; lost?: true };

/** Those who observe a backend. */
export type Stream = {
  /** Whether anybody hears of that. Otherwise nothing is computed for it. */
  hears(type: Observation["type"]): boolean;
  /** Tells of what somebody hears of, or others do. It must not throw. */
  tell(seen: Observation): void;
  /** Runs the work of `lock()`, and its release, so that one can see what the lock is held for. */
  runHeld?:
    | (<T>(about: Subject, work: () => Promise<T>, loss: () => LockError | undefined) => Promise<T>)
    | undefined;
};

/** The observers of a backend, and those of a wrapper around it. */
export function joined(inner: Stream | undefined, outer: Stream): Stream {
  if (inner === undefined) return outer;
  return {
    hears: (type) => inner.hears(type) || outer.hears(type),
    tell(seen) {
      inner.tell(seen);
      outer.tell(seen);
    },
    runHeld: outer.runHeld ?? inner.runHeld,
  };
}

/** What an operation's result says. */
type Report = Pick<Observation, "result"> & Partial<Observation>;
type Ids = {
  readonly key?: string | undefined;
  readonly target?: LockTarget | undefined;
  readonly claims?: unknown;
  readonly lockId?: string | undefined;
  readonly lockIds?: unknown;
  readonly signal?: unknown;
};

/** What something is about: a key, or several, or so many lock ids. */
export type Subject = Pick<Observation, "key" | "keys" | "claims">;

/** What an acquisition is about. */
export function subject({ key, claims }: LockTarget): Subject {
  return claims === undefined ? { key } : subjectOfKeys(claims.map((claim) => claim.key));
}

/** One key is told of as such, however it was asked for. */
export function subjectOfKeys(keys: readonly string[]): Subject {
  const all = [...new Set(keys)];
  return all.length === 1 ? { key: all[0] } : { keys: all };
}

/** The same of what a caller has given, which may be anything. */
function subjectOf({ key, target, claims, lockIds }: Ids): Subject {
  if (target !== undefined) return subject(target);
  if (Array.isArray(lockIds)) return { claims: lockIds.length };
  if (!Array.isArray(claims)) return { key };
  const name = (claim: unknown): unknown => (claim as { key?: unknown } | null)?.key ?? claim;
  return subjectOfKeys(claims.map(name).filter((one) => typeof one === "string"));
}

/**
 * The operations, told of to those who hear of them.
 *
 * @param waits - whether `take` waits itself: whoever asks it to tells of that in the end
 */
export function observe<C extends BackendCapabilities>(
  operations: Operations<C>,
  stream: Stream,
  clock: Clock,
  waits: boolean,
): Operations<C> {
  /** Runs an operation and tells of it. */
  const observing = async <Result>(
    type: LockEvent["type"],
    args: Ids | null | undefined,
    operation: () => Promise<Result>,
    report: (result: Result) => Report,
    wait?: Wait,
  ): Promise<Result> => {
    const startedMs = clock.elapsed();
    // Callers may pass anything.
    const { lockId } = args ?? {};
    const about = subjectOf(args ?? {});
    const common = (): Partial<Observation> => ({
      ...about,
      lockId,
      durationMs: clock.elapsed() - startedMs,
      ...waited(wait, clock),
    });
    let result: Result;
    try {
      result = await operation();
    } catch (error) {
      stream.tell({ ...common(), type, result: "fail", error });
      throw error;
    }
    stream.tell({ ...common(), ...report(result), type });
    return result;
  };
  // Apart from what chooses them: V8 would allocate what their closures refer to also where nobody hears.
  const take: Operations<C>["take"] = (opts, wait) =>
    observing("acquire", opts, () => operations.take(opts, wait), acquired, wait);
  const release: Operations<C>["release"] = (opts, lease) => {
    const before = lease?.report();
    const released = (result: ReleaseResult): Report => {
      // Its loss is told of first.
      if ((result?.ok as unknown) === false) lease?.gone(goneLock(result));
      return {
        ...mutated(result),
        ...before,
        ...(lease?.loss && { lost: true }),
        ...(lease?.isSet === true && subjectOfKeys(lease.keys)),
      };
    };
    return observing("release", opts as Ids, () => operations.release(opts, lease), released);
  };
  return {
    take: (opts, wait) =>
      stream.hears("acquire") && !(wait !== undefined && waits)
        ? take(opts, wait)
        : operations.take(opts, wait),
    release: (opts, lease) =>
      stream.hears("release") ? release(opts, lease) : operations.release(opts, lease),
    extend: (opts) =>
      stream.hears("extend")
        ? observing("extend", opts as Ids, () => operations.extend(opts), mutated)
        : operations.extend(opts),
    isLocked: (opts) =>
      stream.hears("isLocked")
        ? observing("isLocked", opts, () => operations.isLocked(opts), found)
        : operations.isLocked(opts),
    lookup: (opts) =>
      stream.hears("lookup")
        ? observing("lookup", opts, () => operations.lookup(opts), found)
        : operations.lookup(opts),
    forceRelease: (key, options) =>
      stream.hears("forceRelease")
        ? observing("forceRelease", { key }, () => operations.forceRelease(key, options), mutated)
        : operations.forceRelease(key, options),
  };
}

function acquired(result: { ok: boolean; lockId?: string; done?: unknown }): Report {
  return result?.ok
    ? { result: "ok", lockId: result.lockId }
    : { result: "fail", reason: result?.done === undefined ? "locked" : "done" };
}

function mutated(result: ReleaseResult | ExtendResult): Report {
  return result?.ok ? { result: "ok" } : { result: "fail", reason: failureReason(result) };
}

function found(result: unknown): Report {
  return { result: result ? "ok" : "fail" };
}

/** What an event says of the waiting that an attempt is part of: nothing without `lock()`. */
function waited(wait: Wait | undefined, clock: Clock): Partial<Observation> {
  if (wait === undefined) return {};
  const { startMs, attempts, wakeups } = wait;
  return { waitMs: clock.now() - startMs, attempts, wakeups };
}
