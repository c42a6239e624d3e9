/** Locks that the core extends. */

import { addContext, type LockError } from "../native/errors.js";
import type { HoldSettings } from "../native/exports.js";
import { addHolder, forgetHolder, type Holder, removeHolder } from "../native/operations.js";
import type { Failure } from "../native/outcome.js";
import type { Heartbeats } from "./auto-extend.js";
import { systemClock } from "./clock.js";
import { Holding, type Ids, type Keeper } from "./holding.js";

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
    const holding = new Holding(ids, Infinity, systemClock);
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

  /** It cannot know that nobody will release the lock. */
  forget(): void {
    forgetHolder(this.settings.number);
  }

  #tell(what: (holding: Holding) => void): void {
    if (this.#holding === undefined) this.#early.push(what);
    else what(this.#holding);
  }
}

/** Longer than any process runs: about 30 000 years. */
const FOREVER_MS = 1e15;
