/** What was granted: the locks, their names, and the terms on which they are held. It knows nothing of what becomes of them. */

import type { AcquiredLock } from "../native/outcome.js";
import { storedKey } from "../values/slots.js";
import type { Clock } from "../values/clock.js";
import { type Grant, type Terms, type WantedTerms, withWanted } from "./grant.js";
import { Together } from "./together.js";
import type { LockOp, LocksOp } from "../values/types.js";

export class Granted {
  readonly key: string;
  readonly lockId: string;
  /** The period for which it was granted, if it was for one. */
  readonly due: string | undefined;
  readonly clock: Clock;
  /** The locks as they were granted, where they are several, or a slot. */
  readonly locks: readonly AcquiredLock[] | undefined;
  /** Whether these are several. */
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

  /** Of these, those that nobody has released by their ids. The last one stays. */
  get left(): readonly AcquiredLock[] | undefined {
    return this.together?.left;
  }

  /** The keys of what is left. */
  get keys(): string[] {
    return this.together?.left.map((lock) => lock.key) ?? [this.key];
  }

  /** The same as stores name them. */
  get storedKeys(): string[] {
    return this.together?.left.map(storedKey) ?? [this.key.normalize()];
  }

  /** The lock ids of what is left. */
  get lockIds(): string[] {
    return this.together?.left.map((lock) => lock.lockId) ?? [this.lockId];
  }

  /** Names what is left for `release` and `extend`. */
  get ids(): LockOp | LocksOp {
    return this.isSet ? { lockIds: this.lockIds } : { lockId: this.lockId };
  }

  /** What callbacks and errors call its key. */
  get knownKey(): string {
    return this.otherKey ?? this.key;
  }

  /** For how many milliseconds it is to be held still. The clock is read only where there is such a time. */
  get leftToHoldMs(): number {
    const { minHoldMs } = this.terms;
    return minHoldMs === 0 ? 0 : Math.ceil(this.grantedMs + minHoldMs - this.clock.elapsed());
  }

  /** A backend that could not be told what its caller wants has granted it. */
  agreeOn(wanted: WantedTerms): void {
    this.terms = withWanted(this.terms, wanted);
  }

  /** Users know it under that key: a backend of their own was asked for it, and has asked for another. */
  callIt(key: string): void {
    if (key !== this.key) this.otherKey = key;
  }
}
