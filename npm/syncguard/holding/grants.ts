/** The locks that a backend of this package has granted, its operations under way, and what it still allows. */

import { LockError } from "../native/errors.js";
import { ShortLivedMap } from "../native/short-lived-map.js";
import type { Clock } from "../values/clock.js";
import { TIME_TOLERANCE_MS } from "../values/defaults.js";
import type { Lease } from "./lease.js";

/** With so many locks, expired ones are looked for and removed, because nobody has to release a lock. */
const SWEEP_AT = 1_024;

/** Whether the backend grants locks, gives them back in `releaseAll()`, or grants no more because `releaseAll()` has ended. */
type Phase = "granting" | "releasing" | "over";

/** What `close()` has left allowed: everything, only releases, or nothing. */
type Stage = "open" | "closing" | "closed";

export class Grants {
  phase: Phase = "granting";
  stage: Stage = "open";
  private readonly refusing = new AbortController();
  /** The leases by lock id, without those that are being released. */
  private readonly locks = new ShortLivedMap<string, Lease>();
  private sweepAt = SWEEP_AT;
  private running = 0;
  private readonly whenIdle: (() => void)[] = [];

  /**
   * @param refuseInStore - ends all waits for locks of the backend, and all that begin later, with an error
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

  /** The error of {@link check}, if it throws. */
  refusal(): unknown {
    try {
      this.check();
    } catch (error) {
      return error;
    }
    return undefined;
  }

  /** A signal that is aborted once no more locks are granted. */
  get refused(): AbortSignal {
    return this.refusing.signal;
  }

  /** Ends all waits for locks, and all that begin later, with an error. */
  refuseWaiters(): void {
    this.refuseInStore();
    this.refusing.abort();
  }

  /** Grants no more locks, because `releaseAll()` gives back those that are held. */
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

  /** Takes out a lock whose release begins, and gives whether it was there. If the release fails, {@link add} puts it back. */
  remove(lockId: string): boolean {
    return this.locks.delete(lockId);
  }

  /** Takes out all locks that are left of a lease. Gives whether any of them was there. */
  removeLease(lease: Lease): boolean {
    if (lease.locks === undefined) return this.remove(lease.lockId);
    return lease.lockIds.filter((lockId) => this.remove(lockId)).length > 0;
  }

  /** The locks that are held as far as this process knows. */
  held(): Lease[] {
    this.sweep();
    return [...new Set(this.locks.values())];
  }

  /** Notes that an operation for which `close()` has to wait begins. */
  start(): void {
    this.running += 1;
  }

  /** Notes that an operation has ended of which {@link start} was told. */
  end(): void {
    this.running -= 1;
    if (this.running === 0) for (const resolve of this.whenIdle.splice(0)) resolve();
  }

  /** Waits until no operation is under way of which {@link start} was told. */
  async idle(): Promise<void> {
    if (this.running === 0) return;
    await new Promise<void>((resolve) => {
      this.whenIdle.push(resolve);
    });
  }

  private sweep(): void {
    const endMs = this.clock.elapsed() - TIME_TOLERANCE_MS;
    for (const [lockId, lease] of this.locks.entries()) {
      if (!lease.isPast(endMs)) continue;
      this.locks.delete(lockId);
      lease.unwatch();
    }
    this.sweepAt = Math.max(SWEEP_AT, 2 * this.locks.size);
  }
}

/** The error of a closed backend. It is not `InvalidArgument`, because it comes from a race while the process shuts down. */
function closed(): LockError {
  return new LockError("Aborted", "the backend is closed");
}
