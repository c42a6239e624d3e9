/** What is seen of the operations of a backend. Telemetry, metrics and diagnostics channels are made of it. */

import type { Clock } from "./clock.js";
import { heldReport } from "./observed.js";
import { failureReason } from "./mutation.js";
import type {
  BackendCapabilities,
  ExtendResult,
  KeyLookup,
  LockBackend,
  LockEvent,
  LockOp,
  OwnershipLookup,
  ReleaseResult,
  SyncGuardBackend,
} from "./types.js";
import type { Wait } from "../native/wait.js";

/** One operation, the loss of a lock, or the end of a wait for a lock. It has raw identifiers. */
export type Observation = {
  readonly type: LockEvent["type"] | "wait";
  readonly result: LockEvent["result"];
  key?: string | undefined;
  lockId?: string | undefined;
  reason?: LockEvent["reason"] | undefined;
  /** What was thrown. */
  error?: unknown;
  /** How long the operation took. */
  durationMs?: number | undefined;
  /** How many attempts have found the lock held, where this tells of several. */
  contended?: number;
} & Pick<LockEvent, "waitMs" | "attempts" | "wakeups" | "heldMs" | "extensions" | "lost">;

/** It must not throw. */
export type Observer = (seen: Observation) => void;

type Ids = { key?: string | undefined; lockId?: string | undefined };

/** What an operation's result says. */
type Report = Pick<Observation, "result"> & Partial<Observation>;

/** Runs an operation and tells of it. */
export async function observing<Result>(
  tell: Observer,
  clock: Clock,
  type: LockEvent["type"],
  args: Ids | null | undefined,
  operation: () => Promise<Result>,
  report: (result: Result) => Report,
  wait?: Wait,
): Promise<Result> {
  const startedMs = clock.elapsed();
  // Callers may pass anything.
  const { key, lockId } = args ?? {};
  const common = (): Partial<Observation> => ({
    key,
    lockId,
    durationMs: clock.elapsed() - startedMs,
    ...waited(wait, clock),
  });
  let result: Result;
  try {
    result = await operation();
  } catch (error) {
    tell({ ...common(), type, result: "fail", error });
    throw error;
  }
  tell({ ...common(), ...report(result), type });
  return result;
}

/** What is told of each kind of result. */
export const reports = {
  acquire: (result: { ok: boolean; lockId?: string }): Report =>
    result?.ok ? { result: "ok", lockId: result.lockId } : { result: "fail", reason: "locked" },
  mutation: mutated,
  release: (result: ReleaseResult, args: LockOp): Report => ({
    ...mutated(result),
    ...heldReport(args, (result?.ok as unknown) === false),
  }),
  found: (result: unknown): Report => ({ result: result ? "ok" : "fail" }),
};

function mutated(result: ReleaseResult | ExtendResult): Report {
  return result?.ok ? { result: "ok" } : { result: "fail", reason: failureReason(result) };
}

type Observed<C extends BackendCapabilities> = Pick<
  LockBackend<C>,
  "release" | "extend" | "isLocked" | "lookup"
>;

/** The operations that do what those of `backend` do and tell of it, but for `acquire`: its handles want more. */
export function observedOperations<C extends BackendCapabilities>(
  backend: Observed<C>,
  tell: Observer,
  clock: Clock,
): Observed<C> {
  return {
    release: (opts) =>
      observing(
        tell,
        clock,
        "release",
        opts,
        () => backend.release(opts),
        (result) => reports.release(result, opts),
      ),
    extend: (opts) =>
      observing(tell, clock, "extend", opts, () => backend.extend(opts), reports.mutation),
    isLocked: (opts) =>
      observing(tell, clock, "isLocked", opts, () => backend.isLocked(opts), reports.found),
    lookup: (opts: KeyLookup | OwnershipLookup) =>
      observing(tell, clock, "lookup", opts, () => backend.lookup(opts), reports.found),
  };
}

/** A `forceRelease` that does what the given one does and tells of it. */
export function observedForce(
  force: SyncGuardBackend["forceRelease"],
  tell: Observer,
  clock: Clock,
): SyncGuardBackend["forceRelease"] {
  return (key, options) =>
    observing(tell, clock, "forceRelease", { key }, () => force(key, options), reports.mutation);
}

/** What an event says of the waiting that an attempt is part of: nothing without `lock()`. */
function waited(wait: Wait | undefined, clock: Clock): Partial<Observation> {
  if (wait === undefined) return {};
  const { startMs, attempts, wakeups } = wait;
  return { waitMs: clock.now() - startMs, attempts, wakeups };
}
