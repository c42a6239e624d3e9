/** What a lock is granted with. Its lease needs nothing else, then or later. */

import type { AcquiredLock } from "../native/outcome.js";
import type { DisposalOptions } from "../values/arguments.js";
import { type Clock, systemClock } from "../values/clock.js";
import { joined, type Stream } from "../watching/events.js";
import type { Lease } from "./lease.js";
import type { OnLost } from "../values/types.js";

/** How locks are held: the same for all of a backend, unless whoever acquires one wants it otherwise. */
export type Terms = DisposalOptions & {
  readonly clock: Clock;
  /** Is told that the lock is lost; `undefined` prints it. */
  readonly onLost?: OnLost | undefined;
  /** Those who observe the backend. */
  readonly stream?: Stream | undefined;
  /** Asks after locks that nobody extends, once another server may keep them. */
  readonly looks?: { add(lease: Lease): void; delete(lease: Lease): void } | undefined;
  /** Whether it is that of a leader. */
  readonly leads?: boolean | undefined;
  /** For how long the lock is held at least, from its grant on: a release before that lets it end then. */
  readonly minHoldMs: number;
  /** What the handles of a lock have beside the methods of all. */
  readonly membersOf?: ((lease: Lease) => object) | undefined;
};

/** What whoever acquires a lock wants otherwise. */
export type WantedTerms = Partial<Omit<Terms, "clock" | "looks" | "membersOf">>;

/** All that a lease needs. All times are of `clock.elapsed()`, so that nobody who sets a clock moves them. */
export type Grant = {
  /** Of several locks, that of the first. */
  readonly key: string;
  /** Of several locks, that of the first. */
  readonly lockId: string;
  /** The locks, where they are several, or a slot. */
  readonly locks: readonly AcquiredLock[] | undefined;
  /** The period for which it was granted, if it was for one. */
  readonly due: string | undefined;
  readonly grantedMs: number;
  /** When the lock ends unless it is extended. */
  readonly endMs: number;
  /** The same as the store has said it, by its own clock. */
  readonly expiresAtMs: number;
  /** How long it can last from any moment on, by what it was granted for. */
  readonly lastsMs: number;
  readonly terms: Terms;
};

/** How the locks of backends of users' own are held. */
export const PLAIN_TERMS: Terms = { clock: systemClock, minHoldMs: 0 };

/** The terms, with what is wanted otherwise. */
export function withWanted(terms: Terms, wanted: WantedTerms): Terms {
  return {
    ...terms,
    onLost: wanted.onLost ?? terms.onLost,
    stream: wanted.stream === undefined ? terms.stream : joined(terms.stream, wanted.stream),
    leads: wanted.leads ?? terms.leads,
    minHoldMs: wanted.minHoldMs ?? terms.minHoldMs,
    ...disposalWith(terms, wanted),
  };
}

/** How a handle is disposed of, with what is wanted otherwise. */
export function disposalWith(
  disposal: DisposalOptions,
  wanted: DisposalOptions | undefined,
): DisposalOptions {
  return {
    onReleaseError: wanted?.onReleaseError ?? disposal.onReleaseError,
    disposeTimeoutMs: wanted?.disposeTimeoutMs ?? disposal.disposeTimeoutMs,
  };
}
