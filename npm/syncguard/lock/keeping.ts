/** Who extends a lock: the core for the backends of this package, else heartbeats of JavaScript. */

import { addHolder, type Failure, type Holder, removeHolder } from "../native/operations.js";
import { addContext, type LockError } from "../native/errors.js";
import type { HoldSettings } from "../native/exports.js";
import type { Heartbeats } from "./auto-extend.js";
import { startHeartbeats } from "./heartbeats.js";
import { endOf, Handle } from "./held.js";
import { Holding, type Ids, type Keeper } from "./holding.js";
import type { LockBackend } from "./types.js";

/** A lock that was granted; anybody may have made it. */
type Granted = { lockId: string; expiresAtMs: number };

/** What is known of locks that are extended from here and have no handle of ours, by the results of their acquisitions. */
const kept = new WeakMap<object, Holding>();

/** What is known of a lock: by its handle, if it is one of ours. */
export type Term = Handle | Holding;

export function termOf(held: Granted, key: string): Term {
  if (Handle.is(held)) return held;
  const ids = { key, lockId: held.lockId };
  return kept.get(held) ?? new Holding(ids, endOf(held.expiresAtMs));
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
  /** The lock is about to be released. */
  end(term: Term): void {
    if (Handle.is(term)) Handle.end(term);
    else term.end();
  },
};

/** Extends the lock of a backend that does not do so itself. Its acquisition started at `startedMs`. */
export function keep(
  backend: Pick<LockBackend, "extend">,
  held: Granted,
  key: string,
  ttlMs: number,
  startedMs: number,
  heartbeats: Heartbeats,
): void {
  const holding = new Holding({ key, lockId: held.lockId }, startedMs + ttlMs);
  startHeartbeats(backend, holding, ttlMs, startedMs, heartbeats);
  if (Handle.is(held)) Handle.keep(held, holding);
  else kept.set(held, holding);
}

/** The core as the keeper of a lock. It exists before the lock is granted, because the core may tell of it at once. */
export class NativeKeeper implements Keeper, Holder {
  /** What the addon is to know. */
  readonly settings: HoldSettings;
  #holding: Holding | undefined;
  /** What was told before it was told that the lock is granted. */
  readonly #early: ((holding: Holding) => void)[] = [];

  constructor({ everyMs, maxMs, maxStallMs }: Heartbeats) {
    this.settings = { number: addHolder(this), everyMs };
    if (maxMs < FOREVER_MS) this.settings.maxMs = maxMs;
    if (maxStallMs < FOREVER_MS) this.settings.maxStallMs = maxStallMs;
  }

  /** The lock was granted. */
  granted(ids: Ids): Holding {
    const holding = new Holding(ids, Infinity);
    this.#holding = holding;
    holding.keptBy(this);
    for (const tell of this.#early.splice(0)) tell(holding);
    return holding;
  }

  held(expiresAtMs: number): void {
    this.#tell((holding) => holding.beat(expiresAtMs));
  }

  lost(failure: Failure): void {
    this.#tell((holding) => {
      const { key, lockId } = holding.ids;
      holding.loseWith(addContext(failure.toError(), key, lockId) as LockError);
    });
  }

  /** The core hears of extensions itself. */
  moved(): void {}

  /** The core stops by itself when the lock is released. */
  stop(): void {
    removeHolder(this.settings.number);
  }

  #tell(what: (holding: Holding) => void): void {
    if (this.#holding === undefined) this.#early.push(what);
    else what(this.#holding);
  }
}

/** Longer than any process runs: about 30 000 years. */
const FOREVER_MS = 1e15;
