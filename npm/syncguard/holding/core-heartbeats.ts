/** Joins a lease to the heartbeats of the core. */

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

/** The heartbeats of a lock that the core extends. They exist before the grant, because the core may have news before JavaScript reads it. */
export class CoreHeartbeats implements Heartbeats, Holder {
  /** The options of the heartbeats for the addon. */
  readonly settings: HoldSettings;
  #lock: Lease | undefined;
  /** News that came before the grant was read. */
  readonly #early: ((lock: Lease) => void)[] = [];

  constructor(
    { everyMs, maxMs, maxStallMs }: HeartbeatOptions,
    private readonly store: Pick<Store, "stopHeartbeats">,
  ) {
    this.settings = { number: addHolder(this), everyMs };
    if (maxMs < FOREVER_MS) this.settings.maxMs = maxMs;
    if (maxStallMs < FOREVER_MS) this.settings.maxStallMs = maxStallMs;
  }

  /** Takes the lease of the grant, and tells it what came before. */
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

  /** Does nothing, because the core hears of extensions itself. */
  moved(): void {}

  look(): void {
    const loss = lossOf(this.settings.number);
    if (loss === undefined) return;
    // A moment later, the core may read an answer and think otherwise. But the holder works no more from here on.
    this.forget();
    this.#lock?.loseAt(loss.which, loss.failure);
  }

  leave(lockIds: readonly string[]): void {
    this.store.stopHeartbeats(lockIds);
  }

  /** Hears no more news. The core itself stops when the lock is released. */
  stop(): void {
    removeHolder(this.settings.number);
  }

  /** Tells the core to stop, because nobody will release the lock. */
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
