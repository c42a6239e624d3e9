/** What is known of a lock that is held, and heartbeats of JavaScript for those that the core does not extend. */

import type { LockError } from "../native/errors.js";
import type { Heartbeats } from "./auto-extend.js";
import type { Clock } from "./clock.js";
import { startHeartbeats } from "./heartbeats.js";
import { endOf, Handle } from "./held.js";
import { Holding } from "./holding.js";
import type { LockBackend, OnLost } from "./types.js";

/** A lock that was granted; anybody may have made it. */
type Granted = { lockId: string; expiresAtMs: number };

/** What is known of locks that are extended from here and have no handle of ours, by the results of their acquisitions. */
const kept = new WeakMap<object, Holding>();

/** What is known of a lock: by its handle, if it is one of ours. */
export type Term = Handle | Holding;

export function termOf(held: Granted, key: string, clock: Clock): Term {
  if (Handle.is(held)) return held;
  const ids = { key, lockId: held.lockId };
  return kept.get(held) ?? new Holding(ids, endOf(held.expiresAtMs, clock), clock);
}

/** What can be done with a {@link Term}. Nothing is made for a handle whose signal nobody asks for. */
export const terms = {
  signalWith: (term: Term, user: AbortSignal | undefined): AbortSignal =>
    (Handle.is(term) ? Handle.holding(term) : term).signalWith(user),
  /** Keeps the `expiresAtMs` of another handle up to date. */
  follow(term: Term, handle: { expiresAtMs: number }): void {
    if (Handle.is(term)) Handle.follow(term, handle);
    else term.follow(handle);
  },
  /** The holder has extended the lock until `endMs`; `undefined` if it turned out to be gone. */
  moved(term: Term, endMs: number | undefined): void {
    if (Handle.is(term)) Handle.moved(term, endMs);
    else term.moved(endMs);
  },
  /** The holder asks to have the lock extended until `endMs`: see {@link Holding.endsBy}. */
  endsBy: (term: Term, endMs: number): (() => void) =>
    Handle.is(term) ? Handle.endsBy(term, endMs) : term.endsBy(endMs),
  /** Says who is told that the lock is lost; otherwise it is printed. */
  tell(term: Term, onLost: OnLost): void {
    if (Handle.is(term)) Handle.tell(term, onLost);
    else term.tells = onLost;
  },
  /** Why the lock is lost, if it is. */
  loss: (term: Term): LockError | undefined => (Handle.is(term) ? Handle.loss(term) : term.loss),
  /** The lock is about to be released. */
  end(term: Term): void {
    if (Handle.is(term)) Handle.end(term);
    else term.end();
  },
  /** A release has found no such lock. */
  gone(term: Term): void {
    if (Handle.is(term)) Handle.gone(term);
    else term.gone();
  },
  /** Whether the holder can know that the lock is lost. */
  isLost: (term: Term): boolean => (Handle.is(term) ? Handle.isLost(term) : term.isLost()),
};

/** Extends the lock of a backend that does not do so itself. Its acquisition started at `startedMs`. */
export function keep(
  clock: Clock,
  backend: Pick<LockBackend, "extend">,
  held: Granted,
  key: string,
  ttlMs: number,
  startedMs: number,
  heartbeats: Heartbeats,
): void {
  const holding = new Holding({ key, lockId: held.lockId }, startedMs + ttlMs, clock);
  startHeartbeats(clock, backend, holding, ttlMs, startedMs, heartbeats);
  if (Handle.is(held)) Handle.keep(held, holding);
  else kept.set(held, holding);
}
