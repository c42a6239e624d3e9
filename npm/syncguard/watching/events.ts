/**
 * What happens to locks, as a stream of events. Telemetry, diagnostics channels, metrics and spans are views of it.
 *
 * This room knows what may be told of locks, and who hears of it: observers, channels, users' callbacks.
 * It must not change a lock, and must not know how one is held or waited for.
 */

import type { LockError } from "../native/errors.js";
import type { LockTarget } from "../values/claims.js";
import type { LockEvent } from "../values/types.js";

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
  "claims" | "mode" | "waitMs" | "attempts" | "wakeups" | "heldMs" | "extensions" | "lost" | "by"
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
    | (<T>(
        subject: Subject,
        work: () => Promise<T>,
        loss: () => LockError | undefined,
      ) => Promise<T>)
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

/** What something is about: a key, or several, or so many lock ids. */
export type Subject = Pick<Observation, "key" | "keys" | "claims" | "mode">;

/** What an acquisition is about. */
export function subject({ key, claims }: LockTarget): Subject {
  if (claims === undefined) return { key };
  const [first, second] = claims;
  const isShared = second === undefined && first?.kind === "shared";
  return {
    ...subjectOfKeys(claims.map((claim) => claim.key)),
    ...(isShared && { mode: "shared" as const }),
  };
}

/** One key is told of as such, however it was asked for. */
export function subjectOfKeys(keys: readonly string[]): Subject {
  const all = [...new Set(keys)];
  return all.length === 1 ? { key: all[0] } : { keys: all };
}
