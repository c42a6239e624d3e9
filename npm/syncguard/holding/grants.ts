/** The locks that a backend of this package has granted, and what is on its way. */

import { LockError } from "../native/errors.js";
import { ShortLivedMap } from "../native/short-lived-map.js";
import type { Clock } from "../values/clock.js";
import { TIME_TOLERANCE_MS } from "../values/defaults.js";
import type { Lease } from "./lease.js";

/** With so many locks, those are looked for whose time is over: nobody has to release a lock. */
const SWEEP_AT = 1_024;

/** Whether locks are granted, given back by `releaseAll()`, or no longer granted because of it. */
type Phase = "granting" | "releasing" | "over";

/** On the way to its end, a backend allows everything, releases alone, or nothing. */
type Stage = "open" | "closing" | "closed";

export class Grants {
  phase: Phase = "granting";
  stage: Stage = "open";
  private readonly refusing = new AbortController();
  /** By lock id. A lock that is being released is not among them. */
  private readonly locks = new ShortLivedMap<string, Lease>();
  private sweepAt = SWEEP_AT;
  private running = 0;
  private readonly whenIdle: (() => void)[] = [];

  /**
   * @param refuseInStore - lets all fail who wait for a lock of the backend, and who come to wait later
   */
  constructor(
    private readonly clock: Clock,
    private readonly refuseInStore: () => void,
  ) {}

  /**
   * Refuses to acquire and to extend locks, and to look at them, once the backend is about to be closed.
   *
   * @throws LockError `Aborted`
   */
  checkOpen(): void {
    if (this.stage !== "open") throw closed();
  }

  /**
   * Refuses to release locks once the backend is closed.
   *
   * @throws LockError `Aborted`
   */
  checkNotClosed(): void {
    if (this.stage === "closed") throw closed();
  }

  /**
   * Refuses to grant locks once the backend is about to be closed, or `releaseAll()` was called.
   *
   * @throws LockError `Aborted`
   */
  check(): void {
    this.checkOpen();
    if (this.phase !== "granting") {
      throw new LockError("Aborted", "the backend grants no more locks: releaseAll() was called");
    }
  }

  /** Why nobody may wait any more, if so. */
  refusal(): unknown {
    try {
      this.check();
    } catch (error) {
      return error;
    }
    return undefined;
  }

  /** Aborted once nobody is granted a lock any more. */
  get refused(): AbortSignal {
    return this.refusing.signal;
  }

  /** Lets all fail who wait for a lock, and who come to wait later. */
  refuseWaiters(): void {
    this.refuseInStore();
    this.refusing.abort();
  }

  /** Grants no locks any more; those that are held are given back now. */
  refuse(): void {
    this.phase = "releasing";
    this.refuseWaiters();
  }

  /** Notes a lock that was granted. */
  add(lease: Lease): void {
    if (this.locks.size >= this.sweepAt) this.sweep();
    if (lease.locks === undefined) this.locks.set(lease.lockId, lease);
    else for (const lockId of lease.lockIds) this.locks.set(lockId, lease);
  }

  get(lockId: string): Lease | undefined {
    return this.locks.get(lockId);
  }

  /** The release of a lock begins; give it back with {@link add} if that fails. Gives whether it was there. */
  remove(lockId: string): boolean {
    return this.locks.delete(lockId);
  }

  /** The same of all that is left of a lease. */
  removeLease(lease: Lease): boolean {
    if (lease.locks === undefined) return this.remove(lease.lockId);
    return lease.lockIds.filter((lockId) => this.remove(lockId)).length > 0;
  }

  /** The locks that are held as far as this process knows. */
  held(): Lease[] {
    this.sweep();
    return [...new Set(this.locks.values())];
  }

  /** An acquisition or a release begins. */
  start(): void {
    this.running += 1;
  }

  /** It has ended. */
  end(): void {
    this.running -= 1;
    if (this.running === 0) for (const resolve of this.whenIdle.splice(0)) resolve();
  }

  /** Waits until none is on its way. */
  async idle(): Promise<void> {
    if (this.running === 0) return;
    await new Promise<void>((resolve) => {
      this.whenIdle.push(resolve);
    });
  }

  private sweep(): void {
    const endMs = this.clock.elapsed() - TIME_TOLERANCE_MS;
    for (const [lockId, lease] of this.locks.entries()) {
      if (lease.isPast(endMs)) this.locks.delete(lockId);
    }
    this.sweepAt = Math.max(SWEEP_AT, 2 * this.locks.size);
  }
}

/** A race while the process shuts down is no wrong argument, so it is an error of its own. */
function closed(): LockError {
  return new LockError("Aborted", "the backend is closed");
}
