/** The locks of one grant, their names, and the terms on which they are held. What becomes of them is left to `Lease`. */

import type { AcquiredLock } from "../native/outcome.js";
import { storedKey } from "../values/slots.js";
import type { Clock } from "../values/clock.js";
import { type Grant, type Terms, type WantedTerms, withWanted } from "./grant.js";
import { Together } from "./together.js";
import type { LockOp, LocksOp } from "../values/types.js";

export class Granted {
  readonly key: string;
  readonly lockId: string;
  /** The period for which the lock was granted, if there is one. */
  readonly due: string | undefined;
  readonly clock: Clock;
  /** The locks as they were granted. Only for several locks, and for a slot. */
  readonly locks: readonly AcquiredLock[] | undefined;
  /** Whether there are several locks. */
  readonly isSet: boolean;
  protected readonly grantedMs: number;
  protected terms: Terms;
  protected readonly together: Together | undefined;
  private otherKey: string | undefined = undefined;

  constructor(grant: Grant) {
    this.key = grant.key;
    this.lockId = grant.lockId;
    this.due = grant.due;
    this.clock = grant.terms.clock;
    this.locks = grant.locks;
    this.isSet = grant.locks !== undefined && grant.locks.length > 1;
    this.grantedMs = grant.grantedMs;
    this.terms = grant.terms;
    this.together = grant.locks === undefined ? undefined : new Together(grant.locks);
  }

  /** The locks without those that somebody has released by their ids. When none would be left, the last ones stay. */
  get left(): readonly AcquiredLock[] | undefined {
    return this.together?.left;
  }

  /** The keys of what is left. */
  get keys(): string[] {
    return this.together?.left.map((lock) => lock.key) ?? [this.key];
  }

  /** The keys of what is left, as stores name them. */
  get storedKeys(): string[] {
    return this.together?.left.map(storedKey) ?? [this.key.normalize()];
  }

  /** The lock ids of what is left. */
  get lockIds(): string[] {
    return this.together?.left.map((lock) => lock.lockId) ?? [this.lockId];
  }

  /** The ids of what is left, as `release` and `extend` take them. */
  get ids(): LockOp | LocksOp {
    return this.isSet ? { lockIds: this.lockIds } : { lockId: this.lockId };
  }

  /** The key that callbacks and errors name. */
  get knownKey(): string {
    return this.otherKey ?? this.key;
  }

  /** How many milliseconds of `minHoldMs` are left. Without this option the clock is not read. */
  get leftToHoldMs(): number {
    const { minHoldMs } = this.terms;
    return minHoldMs === 0 ? 0 : Math.ceil(this.grantedMs + minHoldMs - this.clock.elapsed());
  }

  /** Adds the caller's terms to a lock whose backend could not be told of them. */
  agreeOn(wanted: WantedTerms): void {
    this.terms = withWanted(this.terms, wanted);
  }

  /** Notes the key by which the user knows the lock. A backend of the user's own may have been asked for that and taken another. */
  callIt(key: string): void {
    if (key !== this.key) this.otherKey = key;
  }
}
