/** The locks that a backend of this package has granted, and what is on its way. */

import { LockError } from "../native/errors.js";
import { ShortLivedMap } from "../native/short-lived-map.js";
import type { Clock } from "./clock.js";
import { TIME_TOLERANCE_MS } from "./defaults.js";
import { Handle } from "./held.js";

/** With so many locks, those are looked for whose time is over: nobody has to release a lock. */
const SWEEP_AT = 1_024;

/** Whether locks are granted, given back by `releaseAll()`, or no longer granted because of it. */
type Phase = "granting" | "releasing" | "over";

export class Grants {
  phase: Phase = "granting";
  /**
   * The last handle made for each lock, by lock id. A lock that is being released is not among them. Of a lock that extends
   * itself, only its owner keeps the handle, so that it can be noticed that nobody does.
   */
  private readonly handles = new ShortLivedMap<string, Handle | WeakRef<Handle>>();
  private sweepAt = SWEEP_AT;
  private running = 0;
  private readonly whenIdle: (() => void)[] = [];

  /**
   * @param refuseWaiters - lets all fail who wait for a lock of the backend, and who come to wait later
   */
  constructor(
    private readonly clock: Clock,
    private readonly refuseWaiters: () => void,
  ) {}

  /**
   * Refuses to grant locks once `releaseAll()` was called.
   *
   * @throws LockError `Aborted`
   */
  check(): void {
    if (this.phase !== "granting") {
      throw new LockError("Aborted", "the backend grants no more locks: releaseAll() was called");
    }
  }

  /** Grants no locks any more; those that are held are given back now. */
  refuse(): void {
    this.phase = "releasing";
    this.refuseWaiters();
  }

  /** Notes a lock that was granted. */
  add(handle: Handle): void {
    if (this.handles.size >= this.sweepAt) this.sweep();
    this.set(handle);
  }

  /** Another handle stands for a lock that was granted. */
  replace(handle: Handle): void {
    if (this.handles.has(handle.lockId)) this.set(handle);
  }

  private set(handle: Handle): void {
    this.handles.set(handle.lockId, Handle.isExtended(handle) ? new WeakRef(handle) : handle);
  }

  /** The handle of a lock whose release begins; give it back with {@link add} if that fails. */
  take(lockId: string): Handle | undefined {
    const handle = this.handles.get(lockId);
    if (handle !== undefined) this.handles.delete(lockId);
    return known(handle);
  }

  /** A lock was extended by `ttlMs` until `endMs`, of the clock. */
  extended(lockId: string, endMs: number, ttlMs: number): void {
    const handle = known(this.handles.get(lockId));
    if (handle !== undefined) Handle.extended(handle, endMs, ttlMs);
  }

  /** The locks that are held as far as this process knows. */
  held(): Handle[] {
    this.sweep();
    return this.handles.values().flatMap((handle) => known(handle) ?? []);
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
    for (const [lockId, kept] of this.handles.entries()) {
      const handle = known(kept);
      if (handle === undefined || Handle.isOver(handle, endMs)) this.handles.delete(lockId);
    }
    this.sweepAt = Math.max(SWEEP_AT, 2 * this.handles.size);
  }
}

function known(handle: Handle | WeakRef<Handle> | undefined): Handle | undefined {
  return handle instanceof WeakRef ? handle.deref() : handle;
}
