/** Runs what is asked of a store, and tells of it. */

import type { Wait } from "../values/wait.js";
import type { LockTarget } from "../values/claims.js";
import type { Clock } from "../values/clock.js";
import { failureReason } from "../values/mutation.js";
import type { ExtendResult, LockEvent, ReleaseResult } from "../values/types.js";
import { type Observation, type Stream, type Subject, subject, subjectOfKeys } from "./events.js";

/** What an operation's result says. */
export type Report = Pick<Observation, "result"> & Partial<Observation>;
/** What an acquisition is part of. */
type Waiting = {
  readonly target?: LockTarget | undefined;
  readonly wait?: Wait | undefined;
};
type Ids = {
  readonly key?: string | undefined;
  readonly claims?: unknown;
  readonly mode?: unknown;
  readonly lockId?: string | undefined;
  readonly lockIds?: unknown;
  readonly signal?: unknown;
};

/** What a call is about: its caller may have given anything. */
function subjectOf({ key, claims, mode, lockIds }: Ids, target: LockTarget | undefined): Subject {
  if (target !== undefined) return subject(target);
  if (Array.isArray(lockIds)) return { claims: lockIds.length };
  if (!Array.isArray(claims)) return mode === "shared" ? { key, mode } : { key };
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
    { target, wait }: Waiting = {},
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

/** What is said of a release or an extension. */
export function mutated(result: ReleaseResult | ExtendResult): Report {
  return result?.ok ? { result: "ok" } : { result: "fail", reason: failureReason(result) };
}

/** What an event says of the waiting that an attempt is part of: nothing without `lock()`. */
function waited(wait: Wait | undefined, clock: Clock): Partial<Observation> {
  if (wait === undefined) return {};
  const { startMs, attempts, wakeups } = wait;
  return { waitMs: clock.now() - startMs, attempts, wakeups };
}
