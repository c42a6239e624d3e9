/** Locks that the core extends. */

import type { HoldSettings } from "../native/exports.js";
import {
  addHolder,
  forgetHolder,
  type Holder,
  lossOf,
  removeHolder,
} from "../native/operations.js";
import type { Failure } from "../native/outcome.js";
import type { Store } from "../native/store.js";
import type { HeartbeatOptions } from "../values/auto-extend.js";
import type { Heartbeats } from "./extended.js";
import type { Lease } from "./lease.js";

/** The core as what sends the heartbeats of a lock. It exists before the lock is granted, because the core may tell of it at once. */
export class CoreHeartbeats implements Heartbeats, Holder {
  /** What the addon is to know. */
  readonly settings: HoldSettings;
  #lock: Lease | undefined;
  /** What was told before it was told that the lock is granted. */
  readonly #early: ((lock: Lease) => void)[] = [];

  constructor(
    { everyMs, maxMs, maxStallMs }: HeartbeatOptions,
    private readonly store: Pick<Store, "stopHeartbeats">,
  ) {
    this.settings = { number: addHolder(this), everyMs };
    if (maxMs < FOREVER_MS) this.settings.maxMs = maxMs;
    if (maxStallMs < FOREVER_MS) this.settings.maxStallMs = maxStallMs;
  }

  /** The lock was granted. */
  granted(lock: Lease): void {
    this.#lock = lock;
    lock.extendedBy(this);
    for (const tell of this.#early.splice(0)) tell(lock);
  }

  held(expiresAtMs: number): void {
    this.#tell((lock) => lock.beat(expiresAtMs));
  }

  lost(failure: Failure, place: number | undefined): void {
    this.#tell((lock) => lock.loseAt(place, failure));
  }

  /** The core hears of extensions itself. */
  moved(): void {}

  look(): void {
    const loss = lossOf(this.settings.number);
    if (loss === undefined) return;
    // The core may think otherwise a moment later, when it reads an answer that has come meanwhile. Its holder works no more.
    this.forget();
    this.#lock?.loseAt(loss.which, loss.failure);
  }

  leave(lockIds: readonly string[]): void {
    this.store.stopHeartbeats(lockIds);
  }

  /** The core stops by itself when the lock is released. */
  stop(): void {
    removeHolder(this.settings.number);
  }

  /** It cannot know that nobody will release the lock. */
  forget(): void {
    forgetHolder(this.settings.number);
  }

  #tell(what: (lock: Lease) => void): void {
    if (this.#lock === undefined) this.#early.push(what);
    else what(this.#lock);
  }
}

/** Longer than any process runs: about 30 000 years. */
const FOREVER_MS = 1e15;
