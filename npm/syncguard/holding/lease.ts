/**
 * A lock that is held, or several that were granted together. It is whole from its grant on. Only where a wrapper that a user has written
 * passes on a lock of this package are its caller's terms added later (`agreeOn`).
 *
 * This room knows who has a lock, until when, and how its holder extends and releases it on any backend.
 * It must not know how a lock is acquired or waited for, or which store it is in.
 */

import { AsyncResource } from "node:async_hooks";
import { LockError } from "../native/errors.js";
import type { Failure } from "../native/outcome.js";
import { endOf } from "../values/clock.js";
import { type LeaseReport, subjectOfKeys } from "../watching/events.js";
import { Extension, type Heartbeats } from "./extended.js";
import { type Grant, unheard } from "./grant.js";
import { Granted } from "./granted.js";
import { GONE, HELD, type LeaseState, type LeaseStateName } from "./lease-state.js";
import { LossSignal } from "./loss-signal.js";
import { monitor, unmonitor } from "./monitored.js";
import { reportLoss, warnOfForgotten } from "../watching/reports.js";
import { callAt } from "../values/timers.js";
import { contextOf, reported } from "./together.js";

/** Who hears of the loss of a lock. Nobody does until its caller has it. If this process itself gives the lock up, nothing is printed. */
type Audience = "nobody" | "all" | "all but the printer";

export class Lease extends Granted {
  private current: LeaseState = HELD;
  private why: LockError | undefined = undefined;
  private audience: Audience = "nobody";
  private endMs: number;
  private shownEndMs: number;
  private longestMs: number;
  private extension: Extension | undefined = undefined;
  private lossSignal: LossSignal | undefined = undefined;
  private disarm: (() => void) | undefined = undefined;
  private isWatched = false;
  private isDoneElsewhere = false;
  /** The asynchronous context of whoever asked for the lock. Users' functions are called in it, wherever the loss is noticed. */
  private readonly context = new AsyncResource("SyncGuardLock");

  constructor(grant: Grant) {
    super(grant);
    this.endMs = grant.endMs;
    this.shownEndMs = grant.expiresAtMs;
    this.longestMs = grant.lastsMs;
  }

  get state(): LeaseStateName {
    return this.current.name;
  }

  /** Why the lock is lost, if it is. */
  get loss(): LockError | undefined {
    return this.why;
  }

  /** When the lock ends by the store's clock, as its handles show it. It is kept here because some users freeze their handles. */
  get expiresAtMs(): number {
    return this.shownEndMs;
  }

  /** Notes when the lock ends by the store's clock. */
  show(expiresAtMs: number): void {
    this.shownEndMs = expiresAtMs;
  }

  /** The longest time that the store can keep the lock from any moment on: the longest TTL that was asked for yet. */
  get lastsMs(): number {
    return this.longestMs;
  }

  /** Whether the lock is that of a leader. */
  get leads(): boolean {
    return this.terms.leads === true;
  }

  /** Makes the members that only handles of this store have. They are not kept: V8 would let more locks survive than are held. */
  membersOfStore(): object | undefined {
    return this.terms.membersOf?.(this);
  }

  /** Whether a transaction of its holder may have stored that something is done for its period. */
  get mayBeDone(): boolean {
    return this.isDoneElsewhere;
  }

  /** Notes that the caller has the lock from now on, and is to hear of its loss. */
  handOut(): void {
    if (this.audience === "nobody") this.audience = "all";
    const { onLost } = this.terms;
    if (this.current === HELD && onLost !== undefined && onLost !== unheard) this.watch();
  }

  /** Notes that nobody gets the lock after all, so nobody is to hear of its loss. */
  handBack(): void {
    this.audience = "nobody";
  }

  /** Notes that a transaction of the holder may store that something is done for the period. */
  noteDone(): void {
    this.isDoneElsewhere = true;
  }

  /** A signal that is aborted when the lock is lost. Without heartbeats that is at its end. */
  get signal(): AbortSignal {
    const { signal } = this.openSignal();
    this.look();
    return signal;
  }

  /** A signal that is aborted with {@link signal} or with `user`, for the reason of the first of them. */
  signalWith(user: AbortSignal | undefined): AbortSignal {
    const own = this.openSignal();
    this.look();
    if (user === undefined) return own.signal;
    const joined = own.joinedWith(user);
    if (this.current !== HELD) own.stopListening();
    return joined;
  }

  /**
   * Fails unless the lock is held at this moment, as far as this process can know.
   *
   * @throws LockError `LockLost`
   */
  assertHeld(): void {
    this.look();
    if (this.why !== undefined) throw this.why;
    if (this.current === HELD) return;
    const message = "the lock is not held any more: it was released";
    throw new LockError("LockLost", message, contextOf(this, undefined));
  }

  /** Whether the lock was lost while it was held. Only heartbeats, extensions and a signal that was asked for notice that. */
  isLost(): boolean {
    if (this.lossSignal !== undefined || this.extension !== undefined) this.look();
    return this.why !== undefined && this.current !== GONE;
  }

  /** How long the lock still lasts if nobody extends it. */
  leftMs(): number {
    return this.endMs - this.clock.elapsed();
  }

  /** Whether the lock has ended by `nowMs` and no heartbeats extend it, so that it can be forgotten even if its release failed. */
  isPast(nowMs: number): boolean {
    return (this.current !== HELD || this.extension === undefined) && this.endMs <= nowMs;
  }

  /** What observers are told of how the lock was held until now. */
  report(): LeaseReport {
    const report: LeaseReport = { heldMs: this.clock.elapsed() - this.grantedMs };
    if (this.extension !== undefined) report.extensions = this.extension.extensions;
    if (this.why !== undefined) report.lost = true;
    return report;
  }

  /** Leaves it to `heartbeats` to extend the lock, and to say when it is lost. */
  extendedBy(heartbeats: Heartbeats): void {
    this.extension = new Extension(heartbeats);
    this.watch();
  }

  /** Adds a handle. A lock with heartbeats ends once all its handles were collected as garbage. */
  follow(handle: object): void {
    this.extension?.follow(handle, this);
  }

  /** Notes that a heartbeat has made the lock end at this time of the store. */
  beat(expiresAtMs: number): void {
    if (this.extension === undefined) return;
    this.extension.beat(expiresAtMs);
    this.show(expiresAtMs);
    this.endIfForgotten();
  }

  /** Ends the lock if its handles were collected. Whoever listens to its signal still works under it. */
  endIfForgotten(): void {
    if (this.current !== HELD || this.extension?.isForgotten !== true) return;
    if (this.lossSignal?.isListenedTo === true) return;
    warnOfForgotten(this.key);
    this.extension.heartbeats.forget?.();
    this.lose("the lock was lost: its handle was garbage-collected before it was released");
  }

  /** Stops heartbeats and waits for the one on its way, where that could undo a shorter end. The core takes care of its own. */
  settling(): Promise<void> | undefined {
    return this.extension?.heartbeats.settle?.();
  }

  /** Stops heartbeats for these locks, because somebody else makes them end. */
  stopHeartbeats(lockIds: readonly string[]): void {
    this.extension?.heartbeats.leave?.(lockIds);
  }

  /**
   * Notes that the lock was extended until `endMs`, by its holder or by its ids.
   *
   * @param ttlMs - for how long it was extended
   */
  moved(endMs: number, ttlMs = 0): void {
    this.endMs = endMs;
    if (ttlMs > this.longestMs) this.longestMs = ttlMs;
    if (this.current !== HELD) return;
    if (this.extension !== undefined) this.extension.heartbeats.moved(endMs);
    else if (this.disarm !== undefined) this.arm();
  }

  /** Notes that some of several locks were extended until `endMs` by their ids. */
  partlyMoved(endMs: number, ttlMs: number): void {
    if (ttlMs > this.longestMs) this.longestMs = ttlMs;
    if (this.extension === undefined) this.mayEnd(endMs);
    else if (this.current === HELD) this.extension.heartbeats.mayEnd?.(endMs);
  }

  /**
   * Notes that an extension is about to be sent, which may make the lock end at `endMs` even if its answer is lost. An earlier end
   * counts at once. With heartbeats nothing is noted, because these hear of extensions by themselves.
   *
   * @returns the end before that, for {@link refused}
   */
  mayEnd(endMs: number): number | undefined {
    const beforeMs = this.endMs;
    if (this.extension !== undefined || endMs >= beforeMs) return undefined;
    this.moved(endMs);
    return beforeMs;
  }

  /** Takes back {@link mayEnd}, because the extension was refused and never sent. */
  refused(beforeMs: number | undefined): void {
    if (beforeMs !== undefined) this.moved(beforeMs);
  }

  /**
   * Notes that locks are about to be released by their ids.
   *
   * @param isOwn - whether the backend that releases them has granted them
   * @returns whether no other locks are left of this lease
   */
  leave(lockIds: readonly string[], isOwn: boolean): boolean {
    if (!isOwn) this.stopHeartbeats(lockIds);
    if (this.together?.leave(lockIds) ?? true) {
      // From here on nobody is told of a loss: whoever extends the lock all the same hears it from the store.
      this.end();
      return true;
    }
    unmonitor(this, lockIds);
    return false;
  }

  /** Loses the lock, if it is held. Of several, `lockId` says which one is gone. */
  lose(message: string, cause?: unknown, lockId?: string): void {
    if (!this.move(this.current.lose)) return;
    this.setLoss(new LockError("LockLost", message, { ...contextOf(this, lockId), cause }), lockId);
  }

  /** Loses the lock because the store no longer has it. Of several, `lockId` says which one is gone. */
  lostInStore(lockId: string | undefined): void {
    this.lose("the lock was lost: the store no longer has it", undefined, lockId);
  }

  /** As {@link lose}, and gives the error for whoever has found the loss, even if the lock was released before. */
  lostBefore(message: string, cause: unknown, lockId: string | undefined): LockError {
    this.lose(message, cause, lockId);
    return this.why ?? new LockError("LockLost", message, { ...contextOf(this, lockId), cause });
  }

  /** As {@link lose}, for a failure that the core tells. Of several locks, the one at `place` is gone. */
  loseAt(place: number | undefined, failure: Failure): void {
    const { message, cause } = failure.toError();
    this.lose(message, cause, place === undefined ? undefined : this.locks?.[place]?.lockId);
  }

  /** Loses the lock because this process itself gives it up. It knows that, so nothing is printed. */
  giveUp(message: string): void {
    if (this.audience === "all") this.audience = "all but the printer";
    this.lose(message);
  }

  /** Begins the release. From then on only that can find the lock lost. */
  end(): void {
    if (this.lossSignal !== undefined) this.look();
    this.move(this.current.end);
    this.lossSignal?.stopListening();
  }

  /** Notes that a release has freed these locks, or may have freed them. */
  freed(lockIds: readonly string[]): void {
    if (this.together?.free(lockIds) ?? lockIds.length > 0) this.move(this.current.freed);
  }

  /** Notes that the release did not find the lock. Of several, `lockId` says which one was gone. */
  gone(lockId?: string): void {
    if (!this.move(this.current.gone)) return;
    const isLate = this.extension === undefined && this.clock.elapsed() >= this.endMs;
    const what = isLate ? "its time was over" : "it was gone";
    const message = `the lock was lost: ${what} when it was released`;
    const meant = isLate ? undefined : lockId;
    this.setLoss(new LockError("LockLost", message, contextOf(this, meant)), meant);
  }

  /** Goes to the next state. Gives whether that is another one. */
  private move(next: LeaseState): boolean {
    const before = this.current;
    this.current = next;
    if (before === HELD && next !== HELD) this.stop();
    return next !== before;
  }

  /** Keeps the reason of a loss, and tells of it. */
  private setLoss(error: LockError, lockId: string | undefined): void {
    this.why = error;
    this.context.runInAsyncScope(() => this.tellLoss(error, lockId));
  }

  private tellLoss(error: LockError, lockId: string | undefined): void {
    const { stream, onLost } = this.terms;
    if (this.audience !== "nobody" && stream?.hears("lost") === true) {
      const subject = this.isSet
        ? subjectOfKeys(this.keys)
        : { key: this.key, lockId: this.lockId };
      stream.tell({ type: "lost", result: "fail", ...subject, ...this.report() });
    }
    this.lossSignal?.abort(error);
    this.lossSignal?.stopListening();
    if (this.audience === "nobody") return;
    if (onLost === undefined && this.audience !== "all") return;
    reportLoss(error, reported(this, lockId), onLost);
  }

  private openSignal(): LossSignal {
    if (this.lossSignal === undefined) {
      this.lossSignal = new LossSignal(() => this.look());
      if (this.why !== undefined) this.lossSignal.abort(this.why);
      else if (this.current === HELD) {
        this.watch();
        this.arm();
      }
    }
    return this.lossSignal;
  }

  /**
   * Notes that somebody would notice a loss from now on: heartbeats, the signal, or a user's function. So the lease hears of what is
   * found out by its id. If nobody extends it, the store is asked after it once another server may have taken over.
   */
  private watch(): void {
    if (this.isWatched) return;
    this.isWatched = true;
    monitor(this);
    if (this.extension === undefined) this.terms.looks?.add(this);
  }

  /** Ends what `watch` began: the lock is not held any more, or its time was over long ago and nobody has released it. */
  unwatch(): void {
    if (!this.isWatched) return;
    this.isWatched = false;
    this.terms.looks?.delete(this);
    unmonitor(this, this.lockIds);
  }

  /** Finds out whether the lock is lost at this moment. In a process that was stopped, this may run before the timer or message that says so. */
  private look(): void {
    if (this.current !== HELD) return;
    if (this.extension !== undefined) this.extension.heartbeats.look();
    else if (this.clock.elapsed() >= this.endMs) this.endOfTime();
  }

  private endOfTime(): void {
    this.lose("the lock was lost: its time is over");
  }

  /** Starts or restarts the timer of the lock's end, if it has no heartbeats. */
  private arm(): void {
    if (this.extension !== undefined) return;
    this.disarm?.();
    this.disarm = callAt(this.clock, this.endMs, () => this.endOfTime());
  }

  private stop(): void {
    this.disarm?.();
    if (this.extension !== undefined) {
      this.extension.stop(this);
      const { expiresAtMs } = this.extension;
      if (expiresAtMs !== undefined) this.endMs = endOf(expiresAtMs, this.clock);
    }
    this.unwatch();
  }
}
