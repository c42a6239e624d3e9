/** A lock that is held, or several that were granted together: until when, how its holder learns that it is lost, and how it is extended and released. */

import { getEventListeners } from "node:events";
import { addContext, LockError } from "../native/errors.js";
import type { AcquiredLock, Failure } from "../native/outcome.js";
import { onAbort } from "../native/signal.js";
import { ShortLivedMap } from "../native/short-lived-map.js";
import { storedKey } from "../native/slots.js";
import type { DisposalOptions } from "./arguments.js";
import type { Clock } from "./clock.js";
import { type LeaseReport, type Stream, subjectOfKeys } from "./events.js";
import { type Extending, extendOn, internalsOf, type Releasing, releaseOn } from "./internals.js";
import { failure, goneLock } from "./mutation.js";
import { reportLoss, reportReleaseError, warnOfForgotten } from "./reports.js";
import { callAt, LONGEST_TIMER_MS } from "./timers.js";
import type { ExtendResult, LockOp, LocksOp, OnLost, ReleaseResult } from "./types.js";

/** What sends the heartbeats of a lock, and says when it is lost: the core, or timers of JavaScript. */
export interface Heartbeats {
  /** The holder itself has extended the lock until `endMs`. */
  moved(endMs: number): void;
  /** The lock is released, or lost: nothing more is to be sent. */
  stop(): void;
  /** The same where nobody has told the store, and nobody will. */
  forget?(): void;
}

/** What shows until when a lock is held. */
type ExpiryView = { expiresAtMs: number };

/** What is known of a lock that is extended by heartbeats. */
type Extended = {
  readonly heartbeats: Heartbeats;
  /** How many heartbeats have extended it. */
  extensions: number;
  /** What the last of them said, of the store's clock. */
  expiresAtMs: number | undefined;
  /** Weak: nothing but its owner may keep a handle of it. */
  readonly handles: WeakRef<ExpiryView>[];
};

/**
 * One lock that is held. All its handles have the same.
 *
 * Somebody notices that it is lost if heartbeats extend it, or once its signal was asked for. After {@link end},
 * nobody notices that any more, unless its release does.
 *
 * All times are of `clock.elapsed()`, so that nobody who sets a clock moves them.
 */
export class Lease {
  /** Why the lock is lost, if it is. */
  loss: LockError | undefined = undefined;
  /** For how long it is held at least, from its grant on: a release before that lets it end then. */
  minHoldMs = 0;
  /** Who is told that the lock is lost; `undefined` prints it. */
  onLost: OnLost | undefined = undefined;
  /** Those who observe the backend. */
  stream: Stream | undefined = undefined;
  /** What its handles have beside the methods of all: see {@link StoreMembers}. */
  ofStore: object | undefined = undefined;
  /** The period for which it was granted, if it was for one. */
  due: string | undefined = undefined;
  /** Whether a transaction of its holder may have stored that something is done for the period. */
  mayBeDone = false;
  private extended: Extended | undefined = undefined;
  private controller: AbortController | undefined = undefined;
  /** Stops the timer that ends the lock. */
  private disarm: (() => void) | undefined = undefined;
  private isOver = false;
  /** What its release has found; `freed` also if it may have freed it: whoever releases it again learns nothing of it. */
  private found: "freed" | "gone" | undefined = undefined;
  /** Remove the listeners from other signals. */
  private stops: (() => void)[] | undefined = undefined;

  /**
   * @param key - of several locks, all keys, for people
   * @param lockId - of several locks, their lock ids with commas between
   * @param endMs - when the lock ends unless it is extended
   * @param lastsMs - how long it can last from any moment on, by all that it was granted and extended for
   */
  constructor(
    readonly key: string,
    readonly lockId: string,
    readonly clock: Clock,
    private readonly grantedMs: number,
    private endMs: number,
    public lastsMs: number,
    /** The locks, where they are several, or a slot. */
    readonly locks?: readonly AcquiredLock[],
  ) {}

  /** The keys, of each lock. */
  get keys(): string[] {
    return this.locks?.map((lock) => lock.key) ?? [this.key];
  }

  /** The same as stores name them. */
  get storedKeys(): string[] {
    return this.locks?.map(storedKey) ?? [this.key.normalize()];
  }

  /** Whether these are several. */
  get isSet(): boolean {
    return this.locks !== undefined && this.locks.length > 1;
  }

  /** Names what is held for `release` and `extend`. */
  get ids(): LockOp | LocksOp {
    const { lockId } = this;
    return this.isSet ? { lockIds: lockId.split(",") } : { lockId };
  }

  /** Aborted when the lock is lost. Without heartbeats that is at its end. */
  get signal(): AbortSignal {
    if (this.controller === undefined) {
      this.controller = new AbortController();
      if (this.loss !== undefined) this.controller.abort(this.loss);
      else if (!this.isOver) {
        monitored.set(this.lockId, this);
        this.arm();
      }
    }
    this.look();
    return this.controller.signal;
  }

  /** {@link signal} that is also aborted with `user`, for its reason. */
  signalWith(user: AbortSignal | undefined): AbortSignal {
    const own = this.signal;
    if (user === undefined) return own;
    const controller = new AbortController();
    const join = (source: AbortSignal): (() => void) | undefined => {
      const abort = (): void => controller.abort(source.reason);
      if (!source.aborted) return onAbort(source, abort);
      abort();
      return undefined;
    };
    const stop = join(user);
    // The user's signal may live on for long.
    if (stop !== undefined) (this.stops ??= []).push(stop);
    join(own);
    return controller.signal;
  }

  /** Leaves it to `heartbeats` to extend the lock, and to say when it is lost. */
  extendedBy(heartbeats: Heartbeats): void {
    this.extended = { heartbeats, extensions: 0, expiresAtMs: undefined, handles: [] };
    monitored.set(this.lockId, this);
  }

  /**
   * Keeps the `expiresAtMs` of a handle up to date while the lock is extended, which ends once all of them were collected without
   * a release.
   */
  follow(handle: ExpiryView): void {
    if (this.extended === undefined) return;
    const { handles, expiresAtMs } = this.extended;
    handles.push(new WeakRef(handle));
    if (expiresAtMs !== undefined) handle.expiresAtMs = expiresAtMs;
    collected.register(handle, this, this);
  }

  /** A heartbeat has made the lock end at this time of the store. */
  beat(expiresAtMs: number): void {
    if (this.extended === undefined) return;
    this.extended.extensions += 1;
    this.extended.expiresAtMs = expiresAtMs;
    for (const one of this.extended.handles) {
      const handle = one.deref();
      if (handle !== undefined) handle.expiresAtMs = expiresAtMs;
    }
    this.endIfForgotten();
  }

  /**
   * Ends the lock if its handles were collected. Whoever listens to its signal still works under the lock, and is asked at each
   * heartbeat.
   */
  endIfForgotten(): void {
    if (this.isOver || this.extended === undefined || this.extended.handles.length === 0) return;
    const { handles, heartbeats } = this.extended;
    if (handles.some((handle) => handle.deref() !== undefined) || this.isHeard()) return;
    warnOfForgotten(this.key);
    heartbeats.forget?.();
    this.lose("the lock was lost: its handle was garbage-collected before it was released");
  }

  /**
   * The lock was extended until `endMs`, whoever has done it.
   *
   * @param ttlMs - for how long it was extended
   */
  moved(endMs: number, ttlMs = 0): void {
    this.endMs = endMs;
    if (ttlMs > this.lastsMs) this.lastsMs = ttlMs;
    if (this.isOver) return;
    if (this.extended !== undefined) this.extended.heartbeats.moved(endMs);
    else if (this.disarm !== undefined) this.arm();
  }

  /** For how long it is held if nobody extends it. */
  leftMs(): number {
    return this.endMs - this.clock.elapsed();
  }

  /** Whether the time of the lock is over at `nowMs`: its release may have failed. */
  isPast(nowMs: number): boolean {
    return (this.isOver || this.extended === undefined) && this.endMs <= nowMs;
  }

  /** The lock is lost, or `which` of several. */
  lose(message: string, cause?: unknown, which?: number): void {
    this.loseWith(new LockError("LockLost", message, { ...this.named(which), cause }));
  }

  /** The lock, or `which` of several, was not there when it was to be extended. */
  lostInStore(which: number | undefined): void {
    this.lose("the lock was lost: the store no longer has it", undefined, which);
  }

  /** As {@link lose}, with the error for whoever has found that out, also if the lock was released before. */
  lostBefore(message: string, cause: unknown, which: number | undefined): LockError {
    this.lose(message, cause, which);
    return this.loss ?? new LockError("LockLost", message, { ...this.named(which), cause });
  }

  /** As {@link lose}, for what the core says. */
  loseOne(failure: Failure, which: number | undefined): void {
    const { key, lockId } = this.named(which);
    this.loseWith(addContext(failure.toError(), key, lockId) as LockError);
  }

  /** Names one of several locks for errors; all of them if it is not known which. */
  named(which: number | undefined): { key: string; lockId: string } {
    const { key, lockId } = (which === undefined ? undefined : this.locks?.[which]) ?? this;
    return { key, lockId };
  }

  /** The lock is lost for this reason. */
  loseWith(error: LockError): void {
    if (!this.isOver) this.setLoss(error);
  }

  /** This process itself gives the lock up. It knows that, so that nothing is printed. */
  giveUp(message: string): void {
    this.onLost ??= () => undefined;
    this.lose(message);
  }

  /** A release has freed it, or may have done so. */
  released(): void {
    this.found = "freed";
  }

  /** Its release has found it gone: the work went on without it, whether somebody has put it out or its time was over. */
  gone(which?: number): void {
    if (this.found === "freed" || this.loss !== undefined) return;
    this.found = "gone";
    const isLate = this.extended === undefined && this.clock.elapsed() >= this.endMs;
    const why = isLate ? "its time was over" : "it was gone";
    const message = `the lock was lost: ${why} when it was released`;
    this.setLoss(new LockError("LockLost", message, this.named(isLate ? undefined : which)));
  }

  /**
   * Whether it was lost while it was held: its signal, if anybody has asked for it, is aborted, or its heartbeats have found that out.
   * Whoever extends what was released asks the store.
   */
  isLost(): boolean {
    if (this.controller !== undefined && !this.isOver) this.look();
    return this.loss !== undefined && this.found !== "gone";
  }

  /** The lock is about to be released, so that it cannot be lost any more. */
  end(): void {
    if (this.controller !== undefined) this.look();
    if (!this.isOver) this.stop();
    this.removeListeners();
  }

  /** How it was held until now. */
  report(): LeaseReport {
    const report: LeaseReport = { heldMs: this.clock.elapsed() - this.grantedMs };
    if (this.extended !== undefined) report.extensions = this.extended.extensions;
    if (this.loss !== undefined) report.lost = true;
    return report;
  }

  /** Extends the lock for its holder, who sees in `handle` until when. */
  async extend(
    backend: Extending,
    handle: ExpiryView,
    ttlMs: number,
    signal: AbortSignal | undefined,
  ): Promise<ExtendResult> {
    if (this.isLost()) return failure("expired");
    const beforeMs = this.endMs;
    const endMs = this.clock.elapsed() + ttlMs;
    // The store may carry it out from now on, also if nobody hears of it.
    const mayEndSooner =
      signal?.aborted !== true && this.extended === undefined && endMs < beforeMs;
    if (mayEndSooner) this.moved(endMs);
    let result;
    try {
      result = await extendOn(backend, { ...this.ids, ttlMs, signal });
    } catch (error) {
      const isRefused = error instanceof LockError && error.code === "InvalidArgument";
      if (isRefused && mayEndSooner) this.moved(beforeMs);
      throw error;
    }
    // It was lost meanwhile, and whoever works under it has been told.
    if (result?.ok && this.isLost()) return failure("expired");
    if (result?.ok) handle.expiresAtMs = result.expiresAtMs;
    if (result?.ok) this.moved(endMs);
    else this.lostInStore(goneLock(result));
    return result;
  }

  /** Releases the lock for its holder. One that was lost, or is found gone, is not released, whatever the store has freed. */
  async release(backend: Releasing, signal?: AbortSignal): Promise<ReleaseResult> {
    this.end();
    const wasLost = this.isLost();
    const args = signal === undefined ? this.ids : { ...this.ids, signal };
    const result = await this.giveBack(backend, args, wasLost);
    // Anyone may have written the backend.
    if ((result?.ok as unknown) === false) this.gone(goneLock(result));
    return wasLost ? failure("expired") : result;
  }

  /**
   * Releases the lock under which something was done for its period, and stores in the same step that it is. `sent` is called
   * once that is on its way: until then, the lock is to be released otherwise. A lock that is lost may have been done before that.
   */
  async finish(backend: Releasing, sent: () => void): Promise<ReleaseResult> {
    this.end();
    if (this.isLost() && !this.mayBeDone) return failure("expired");
    sent();
    const { due } = this;
    const result = await releaseOn(
      backend,
      due === undefined ? this.ids : { ...this.ids, due },
      this,
    );
    if (!result.ok) this.gone();
    return result;
  }

  /** Frees it, or lets it end later if it was not held for long enough. */
  private async giveBack(
    backend: Releasing,
    args: LockOp | LocksOp,
    wasLost: boolean,
  ): Promise<ReleaseResult> {
    const leftMs = Math.ceil(this.grantedMs + this.minHoldMs - this.clock.elapsed());
    if (leftMs <= 0 || wasLost) return await releaseOn(backend, args, this);
    this.extended?.heartbeats.forget?.();
    const ended = await extendOn(backend as Releasing & Extending, { ...args, ttlMs: leftMs });
    // It ends by itself: nobody has to give it back any more, and `releaseAll()` must not do so sooner.
    internalsOf(backend)?.grants?.take(this.lockId);
    if (!ended.ok) return ended;
    this.released();
    const about = this.isSet ? subjectOfKeys(this.keys) : { lockId: this.lockId };
    if (this.stream?.hears("release") === true) {
      this.stream.tell({ type: "release", result: "ok", ...about, ...this.report() });
    }
    return { ok: true };
  }

  /** Releases the lock at the end of a block or of `lock()`. Never rejects. */
  async dispose(
    backend: Releasing,
    { onReleaseError, disposeTimeoutMs }: DisposalOptions,
  ): Promise<void> {
    const release = async (signal?: AbortSignal): Promise<void> => {
      try {
        await this.release(backend, signal);
      } catch (error) {
        reportReleaseError(error, this.lockId, this.key, onReleaseError);
      }
    };
    if (disposeTimeoutMs === undefined) await release();
    else await endWithin(this.clock, disposeTimeoutMs, release);
  }

  private setLoss(error: LockError): void {
    const { key, lockId, stream } = this;
    this.loss = error;
    if (!this.isOver) this.stop();
    if (stream?.hears("lost") === true) {
      const about = this.isSet ? subjectOfKeys(this.keys) : { key, lockId };
      stream.tell({ type: "lost", result: "fail", ...about, ...this.report() });
    }
    this.controller?.abort(error);
    this.removeListeners();
    reportLoss(error, { lockId, key }, this.onLost);
  }

  private isHeard(): boolean {
    if (this.controller === undefined) return false;
    const { signal } = this.controller;
    try {
      return signal.onabort !== null || getEventListeners(signal, "abort").length > 0;
    } catch {
      // Not every runtime can tell.
      return true;
    }
  }

  private stop(): void {
    this.isOver = true;
    this.disarm?.();
    if (this.extended !== undefined) {
      const { heartbeats, expiresAtMs } = this.extended;
      heartbeats.stop();
      collected.unregister(this);
      if (expiresAtMs !== undefined) this.endMs = endOf(expiresAtMs, this.clock);
    }
    if (monitored.get(this.lockId) === this) monitored.delete(this.lockId);
  }

  private removeListeners(): void {
    for (const stop of this.stops ?? []) stop();
    this.stops = undefined;
  }

  /** Looks at the clock: in a process that was stopped, others may come here before the timer does. */
  private look(): void {
    if (this.extended === undefined && this.clock.elapsed() >= this.endMs) this.endOfTime();
  }

  private endOfTime(): void {
    this.lose("the lock was lost: its time is over");
  }

  /** Starts the timer that ends the lock, or starts it anew. */
  private arm(): void {
    if (this.extended !== undefined) return;
    this.disarm?.();
    this.disarm = callAt(this.clock, this.endMs, () => this.endOfTime());
  }
}

/** When a lock ends, of `clock.elapsed()`, that ends at `expiresAtMs` of its backend's clock. */
export function endOf(expiresAtMs: number, clock: Clock): number {
  return clock.elapsed() + expiresAtMs - clock.now();
}

/** The locks that somebody has to hear of when they are released or extended by their ids, through whatever backend. */
const monitored = new ShortLivedMap<string, Lease>();

/** The lock of that id, if somebody would notice its loss. */
export function monitoredLease(lockId: string): Lease | undefined {
  return monitored.size > 0 ? monitored.get(lockId) : undefined;
}

const collected = new FinalizationRegistry<Lease>((lease) => lease.endIfForgotten());

/** Calls `run`, which never rejects. After `timeoutMs`, aborts its signal and stops waiting. */
function endWithin(
  clock: Clock,
  timeoutMs: number,
  run: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  return new Promise((resolve) => {
    const controller = new AbortController();
    const timer = clock.setTimeout(
      () => {
        controller.abort();
        resolve();
      },
      Math.min(timeoutMs, LONGEST_TIMER_MS),
    );
    void run(controller.signal).then(() => {
      clock.clearTimeout(timer);
      resolve();
    });
  });
}
