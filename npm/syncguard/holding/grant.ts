/** All that a lease is made of. It needs nothing else later. */

import type { AcquiredLock } from "../native/outcome.js";
import type { DisposalOptions } from "../values/arguments.js";
import { type Clock, systemClock } from "../values/clock.js";
import { joined, type Stream } from "../watching/events.js";
import type { Lease } from "./lease.js";
import type { OnLost } from "../values/types.js";

/** How locks are held. A backend has terms for all its locks, and whoever acquires one may want others. */
export type Terms = DisposalOptions & {
  readonly clock: Clock;
  /** Called when the lock is lost. Without it, the loss is printed. */
  readonly onLost?: OnLost | undefined;
  /** Carries what observers hear. */
  readonly stream?: Stream | undefined;
  /** Asks the store after locks without heartbeats once another server may have taken over. */
  readonly looks?: { add(lease: Lease): void; delete(lease: Lease): void } | undefined;
  /** Whether the lock is that of a leader. */
  readonly leads?: boolean | undefined;
  /** How long nobody else gets the lock, from its grant on. A release before that makes it end then. */
  readonly minHoldMs: number;
  /** Makes the members that only handles of this store have. */
  readonly membersOf?: ((lease: Lease) => object) | undefined;
};

/** The terms that whoever acquires a lock wants in place of the backend's. */
export type WantedTerms = Partial<Omit<Terms, "clock" | "looks" | "membersOf">>;

/** All that a lease needs. Times are by `clock.elapsed()`, so that setting the machine's clock does not move them. */
export type Grant = {
  /** The key. For several locks, that of the first. */
  readonly key: string;
  /** The lock id. For several locks, that of the first. */
  readonly lockId: string;
  /** The locks. Only for several locks, and for a slot. */
  readonly locks: readonly AcquiredLock[] | undefined;
  /** The period for which the lock was granted, if there is one. */
  readonly due: string | undefined;
  readonly grantedMs: number;
  /** When the lock ends unless it is extended. */
  readonly endMs: number;
  /** When it ends by the store's clock. */
  readonly expiresAtMs: number;
  /** The longest time that the store can keep the lock from any moment on: its TTL. */
  readonly lastsMs: number;
  readonly terms: Terms;
};

/** An `onLost` by which nobody hears of a loss, and nothing is printed. */
export const unheard: OnLost = () => undefined;

/** The terms of locks that users' own backends have granted. */
export const PLAIN_TERMS: Terms = { clock: systemClock, minHoldMs: 0 };

/** Replaces terms by those that are wanted. Both streams hear. */
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

/** Replaces the options of disposal by those that are wanted. */
export function disposalWith(
  disposal: DisposalOptions,
  wanted: DisposalOptions | undefined,
): DisposalOptions {
  return {
    onReleaseError: wanted?.onReleaseError ?? disposal.onReleaseError,
    disposeTimeoutMs: wanted?.disposeTimeoutMs ?? disposal.disposeTimeoutMs,
  };
}
