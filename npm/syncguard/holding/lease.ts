/**
 * A lock that is held, or several that were granted together. It is whole from its grant on: nobody writes its fields later.
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
import type { Grant } from "./grant.js";
import { Granted } from "./granted.js";
import { GONE, HELD, type LeaseState, type LeaseStateName } from "./lease-state.js";
import { LossSignal } from "./loss-signal.js";
import { monitor, unmonitor } from "./monitored.js";
import { reportLoss, warnOfForgotten } from "../watching/reports.js";
import { callAt } from "../values/timers.js";
import { contextOf, reported } from "./together.js";

/** Who hears of the loss of a lock: nobody until its caller has it. It is not printed if this process gives it up. */
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
  private isDoneElsewhere = false;
  /** That of whoever has asked for the lock: users' functions hear of it there, wherever they are called from. */
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

  /** When it ends by the store's clock, as its handles show it. These are frozen by some users: nothing is written into them. */
  get expiresAtMs(): number {
    return this.shownEndMs;
  }

  /** The store has said that it ends then. */
  show(expiresAtMs: number): void {
    this.shownEndMs = expiresAtMs;
  }

  /** How long it can last from any moment on, by all that it was granted and extended for. */
  get lastsMs(): number {
    return this.longestMs;
  }

  /** Whether it is that of a leader. */
  get leads(): boolean {
    return this.terms.leads === true;
  }

  /** What a handle of it has beside the methods of all. Not kept: then V8 lets more locks survive than are held. */
  membersOfStore(): object | undefined {
    return this.terms.membersOf?.(this);
  }

  /** Whether a transaction of its holder may have stored that something is done for its period. */
  get mayBeDone(): boolean {
    return this.isDoneElsewhere;
  }

  /** Its caller has it from now on, and hears of its loss. */
  handOut(): void {
    if (this.audience === "nobody") this.audience = "all";
  }

  /** A transaction of its holder is to store that something is done for its period. */
  noteDone(): void {
    this.isDoneElsewhere = true;
  }

  /** Aborted when the lock is lost. Without heartbeats that is at its end. */
  get signal(): AbortSignal {
    const { signal } = this.openSignal();
    this.look();
    return signal;
  }

  /** {@link signal} that is also aborted with `user`, for its reason. */
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

  /** Whether it was lost, as far as anybody notices that: its heartbeats, or its signal. */
  isLost(): boolean {
    if (this.lossSignal !== undefined || this.extension !== undefined) this.look();
    return this.why !== undefined && this.current !== GONE;
  }

  /** For how long it is held if nobody extends it. */
  leftMs(): number {
    return this.endMs - this.clock.elapsed();
  }

  /** Whether the time of the lock is over at `nowMs`: its release may have failed. */
  isPast(nowMs: number): boolean {
    return (this.current !== HELD || this.extension === undefined) && this.endMs <= nowMs;
  }

  /** How it was held until now. */
  report(): LeaseReport {
    const report: LeaseReport = { heldMs: this.clock.elapsed() - this.grantedMs };
    if (this.extension !== undefined) report.extensions = this.extension.extensions;
    if (this.why !== undefined) report.lost = true;
    return report;
  }

  /** Leaves it to `heartbeats` to extend the lock, and to say when it is lost. */
  extendedBy(heartbeats: Heartbeats): void {
    this.extension = new Extension(heartbeats);
    monitor(this);
  }

  /** A lock that is extended by heartbeats ends once all of its handles were collected. */
  follow(handle: object): void {
    this.extension?.follow(handle, this);
  }

  /** A heartbeat has made the lock end at this time of the store. */
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

  /** Waits for heartbeats that are on their way, where these would make it last longer again after it was shortened. */
  settling(): Promise<void> | undefined {
    return this.extension?.heartbeats.settle?.();
  }

  /** Heartbeats extend no more what these ids name: somebody else makes it end. */
  stopHeartbeats(lockIds: readonly string[]): void {
    this.extension?.heartbeats.leave?.(lockIds);
  }

  /**
   * The lock was extended until `endMs`, whoever has done it.
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

  /** Some of several locks were extended until `endMs`, by their ids. */
  partlyMoved(endMs: number, ttlMs: number): void {
    if (ttlMs > this.longestMs) this.longestMs = ttlMs;
    if (this.extension === undefined) this.mayEnd(endMs);
    else if (this.current === HELD) this.extension.heartbeats.mayEnd?.(endMs);
  }

  /**
   * What is about to be sent may make the lock end at `endMs`, also if nobody hears of it. Heartbeats hear of that otherwise.
   *
   * @returns when it ended before, for {@link refused}
   */
  mayEnd(endMs: number): number | undefined {
    const beforeMs = this.endMs;
    if (this.extension !== undefined || endMs >= beforeMs) return undefined;
    this.moved(endMs);
    return beforeMs;
  }

  /** What {@link mayEnd} was told of was refused: nothing was sent. */
  refused(beforeMs: number | undefined): void {
    if (beforeMs !== undefined) this.moved(beforeMs);
  }

  /** Locks of it are about to be released by their ids. Gives whether that is all that it has. */
  leave(lockIds: readonly string[], isOwn: boolean): boolean {
    if (!isOwn) this.stopHeartbeats(lockIds);
    if (this.together?.leave(lockIds) ?? true) {
      // Whoever extends it all the same is told by the store.
      this.end();
      return true;
    }
    unmonitor(this, lockIds);
    return false;
  }

  /** The lock is lost, or that one of several. */
  lose(message: string, cause?: unknown, lockId?: string): void {
    if (!this.move(this.current.lose)) return;
    this.setLoss(new LockError("LockLost", message, { ...contextOf(this, lockId), cause }), lockId);
  }

  /** The lock, or that one of several, was not there when it was to be extended. */
  lostInStore(lockId: string | undefined): void {
    this.lose("the lock was lost: the store no longer has it", undefined, lockId);
  }

  /** As {@link lose}, with the error for whoever has found that out, also if the lock was released before. */
  lostBefore(message: string, cause: unknown, lockId: string | undefined): LockError {
    this.lose(message, cause, lockId);
    return this.why ?? new LockError("LockLost", message, { ...contextOf(this, lockId), cause });
  }

  /** As {@link lose}, for what the core says: of several, the one at that place. */
  loseAt(place: number | undefined, failure: Failure): void {
    const { message, cause } = failure.toError();
    this.lose(message, cause, place === undefined ? undefined : this.locks?.[place]?.lockId);
  }

  /** This process itself gives the lock up. It knows that, so that nothing is printed. */
  giveUp(message: string): void {
    if (this.audience === "all") this.audience = "all but the printer";
    this.lose(message);
  }

  /** The lock is about to be released, so that it cannot be lost any more. */
  end(): void {
    if (this.lossSignal !== undefined) this.look();
    this.move(this.current.end);
    this.lossSignal?.stopListening();
  }

  /** A release has freed these of its locks, or may have done so. */
  freed(lockIds: readonly string[]): void {
    if (this.together?.free(lockIds) ?? lockIds.length > 0) this.move(this.current.freed);
  }

  /** Its release, or that of one of several, has found it gone. */
  gone(lockId?: string): void {
    if (!this.move(this.current.gone)) return;
    const isLate = this.extension === undefined && this.clock.elapsed() >= this.endMs;
    const what = isLate ? "its time was over" : "it was gone";
    const message = `the lock was lost: ${what} when it was released`;
    const meant = isLate ? undefined : lockId;
    this.setLoss(new LockError("LockLost", message, contextOf(this, meant)), meant);
  }

  /** Goes on to the next state; gives whether that is another one. */
  private move(next: LeaseState): boolean {
    const before = this.current;
    this.current = next;
    if (before === HELD && next !== HELD) this.stop();
    return next !== before;
  }

  /** Tells of the loss of the lock, or of that one of several. */
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
        monitor(this);
        if (this.extension === undefined) this.terms.looks?.add(this);
        this.arm();
      }
    }
    return this.lossSignal;
  }

  /** Looks whether it is lost at this moment: in a process that was stopped, others may come here before a timer or a message does. */
  private look(): void {
    if (this.current !== HELD) return;
    if (this.extension !== undefined) this.extension.heartbeats.look();
    else if (this.clock.elapsed() >= this.endMs) this.endOfTime();
  }

  private endOfTime(): void {
    this.lose("the lock was lost: its time is over");
  }

  /** Starts the timer that ends the lock, or starts it anew. */
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
    if (this.lossSignal !== undefined) this.terms.looks?.delete(this);
    if (this.extension !== undefined || this.lossSignal !== undefined)
      unmonitor(this, this.lockIds);
  }
}
