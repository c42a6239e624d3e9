/** The operations of a backend, told of to those who hear of them. */

import type { Wait } from "../native/wait.js";
import type { LockTarget } from "../values/claims.js";
import type { Clock } from "../values/clock.js";
import type { Done } from "../values/due.js";
import {
  type Observation,
  type Stream,
  type Subject,
  subject,
  subjectOfKeys,
} from "../watching/events.js";
import type { Asked, Operations } from "../holding/internals.js";
import { failureReason, goneLock } from "../values/mutation.js";
import type {
  BackendCapabilities,
  ExtendResult,
  LockEvent,
  ReleaseResult,
} from "../values/types.js";

/** What an operation's result says. */
type Report = Pick<Observation, "result"> & Partial<Observation>;
type Ids = {
  readonly key?: string | undefined;
  readonly claims?: unknown;
  readonly lockId?: string | undefined;
  readonly lockIds?: unknown;
  readonly signal?: unknown;
};

/** The same of what a caller has given, which may be anything. */
function subjectOf({ key, claims, lockIds }: Ids, target: LockTarget | undefined): Subject {
  if (target !== undefined) return subject(target);
  if (Array.isArray(lockIds)) return { claims: lockIds.length };
  if (!Array.isArray(claims)) return { key };
  const name = (claim: unknown): unknown => (claim as { key?: unknown } | null)?.key ?? claim;
  return subjectOfKeys(claims.map(name).filter((text) => typeof text === "string"));
}

/** What runs an operation, and tells of it; also who has asked for it, if `by` names them. */
export function observer(stream: Stream, clock: Clock, by?: string) {
  return async <Result>(
    type: LockEvent["type"],
    args: Ids | null | undefined,
    operation: () => Promise<Result>,
    report: (result: Result) => Report,
    { target, wait }: Asked = {},
  ): Promise<Result> => {
    const startedMs = clock.elapsed();
    // Callers may pass anything.
    const { lockId } = args ?? {};
    const subjectOfCall = subjectOf(args ?? {}, target);
    const common = (): Partial<Observation> => ({
      ...subjectOfCall,
      lockId,
      durationMs: clock.elapsed() - startedMs,
      ...waited(wait, clock),
      ...(by !== undefined && { by }),
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
}

/**
 * The operations, told of to those who hear of them.
 *
 * @param waits - whether `acquire` waits itself: whoever asks it to tells of that in the end
 */
export function observe<C extends BackendCapabilities>(
  operations: Operations<C>,
  stream: Stream,
  clock: Clock,
  waits: boolean,
): Operations<C> {
  const observing = observer(stream, clock);
  // Apart from what chooses them: V8 would allocate what their closures refer to also where nobody hears.
  const acquire: Operations<C>["acquire"] = (opts, asked) =>
    observing("acquire", opts, () => operations.acquire(opts, asked), acquired, asked);
  const release: Operations<C>["release"] = (opts, lease) => {
    const before = lease?.report();
    const released = (result: ReleaseResult): Report => {
      // Its loss is told of first.
      if ((result?.ok as unknown) === false) lease?.gone(goneLock(result, opts));
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
    acquire: (opts, asked) =>
      stream.hears("acquire") && !(asked?.wait !== undefined && waits)
        ? acquire(opts, asked)
        : operations.acquire(opts, asked),
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

function acquired(result: { ok: boolean; lockId?: string; done?: Done }): Report {
  if (result?.ok) return { result: "ok", lockId: result.lockId };
  const { done } = result ?? {};
  if (done === undefined) return { result: "fail", reason: "locked" };
  return { result: "fail", reason: done.isLater ? "ahead" : "done" };
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
