/**
 * Whose turn it is to ask for a lock. Those who wait for the same key stand in a queue, and only the first of them asks:
 * when the store tells that the lock was freed, and when any of them would ask by the rules for polling.
 */

import type { Watch } from "../native/outcome.js";
import type { LockError } from "../native/errors.js";
import { type Cancellation, CANCELLED } from "./cancellation.js";
import type { Timer } from "./clock.js";
import type { WaitingDefaults } from "./defaults.js";
import { ifKnown, type Known } from "./known.js";
import { paceMs } from "./pace.js";
import { LONGEST_TIMER_MS } from "./timers.js";

/** One who waits for a lock; times by the clock. */
export type Waiting = {
  /** Since when. */
  readonly startMs: number;
  /** When its time is over. */
  readonly endMs: number;
  /** When it would ask, if it were alone. */
  readonly policy: WaitingDefaults;
  /** Whether it wants to be told by the store. */
  readonly listens: boolean;
};

/** A place in a queue behind the first. */
type Place = {
  readonly waiter: Waiting;
  /** Tells that the turn has come (`true`), or that the time is over. */
  resume: (isFirst: boolean) => void;
};

/** For how long a lock may be handed over within this process before all processes have the same chance again. */
const HAND_OVER_MS = 250;
/** For how long another process that had the lock is taken for one that wants it again, in milliseconds. */
const RIVALRY_MS = 1_000;
/** How late the message of a release may come that the next holder did not wait for, in milliseconds. */
const LATE_MESSAGE_MS = 10;

/**
 * What ended a pause: the time of the next retry; a message that the lock was freed; or an earlier reason to ask, which is
 * that its time is over, or that somebody behind would ask by now.
 */
export type PauseEnd = "retry" | "freed" | "early";

/** A pause of the first. */
type Pause = {
  readonly startMs: number;
  /** When it ends if nothing comes before; both by the clock. */
  endMs: number;
  timer: Timer | undefined;
  readonly end: (end: PauseEnd) => void;
};

/** Those who wait for one key, first come, first served. The first is not in the line. */
export class Queue {
  private readonly line: Place[] = [];
  private timer: Timer | undefined;
  private timerEndMs = Infinity;
  private watch: Watch | undefined;
  private pausing: Pause | undefined;
  /** Whether the lock may have been freed since the store was last asked. */
  private wasFreed = false;
  /** Since when somebody who stood in this queue has the lock. */
  private heldSinceMs: number | undefined;
  /** Whether its release did not wait for the store to tell. */
  private isHandedOver = false;
  /** The lock id that is being released, behind which the store is to be asked. */
  private released: string | undefined;
  /** When all processes last had the same chance. */
  private openedMs = 0;
  /** Whether they have it now, and this process has to wait for the others to hear. */
  private isOpened = false;
  private rivalsUntilMs = 0;
  /** How the store failed when it was last asked: all who wait for their turn wait for this. */
  failure: LockError | null = null;
  /** When the lock ends that the first before has taken, by the clock. */
  takenUntilMs: number | undefined;

  private constructor(
    private readonly known: Known,
    private readonly key: string,
  ) {}

  /** The queue for that key. `isFirst` says whether the caller has the turn; else it comes with `turn`. */
  static join(known: Known, key: string): { queue: Queue; isFirst: boolean } {
    const joined = known.queues.get(key);
    if (joined !== undefined) return { queue: joined, isFirst: false };
    const queue = new Queue(known, key);
    known.queues.set(key, queue);
    return { queue, isFirst: true };
  }

  /** Waits until all who came before have left; `false` if the time of `waiter` is over first. */
  async turn(waiter: Waiting, cancellation: Cancellation | undefined): Promise<boolean> {
    let isFirst: boolean | undefined;
    const place: Place = { waiter, resume: () => undefined };
    const turn = new Promise<boolean>((resolve) => {
      place.resume = (first) => {
        isFirst = first;
        resolve(first);
      };
    });
    this.line.push(place);
    this.setTimer(waiter.endMs);
    this.hurry(waiter);
    if (cancellation === undefined) return await turn;
    if ((await cancellation.race(turn)) !== CANCELLED && !cancellation.signal.aborted)
      return await turn;
    if (isFirst === undefined) this.line.splice(this.line.indexOf(place), 1);
    else if (isFirst) this.leave(undefined);
    throw cancellation.error();
  }

  /** Gives the turn to the next. `takenUntilMs`: the lock was granted, and lasts at most until then. */
  leave(takenUntilMs: number | undefined): void {
    this.takenUntilMs = takenUntilMs;
    if (takenUntilMs !== undefined) {
      this.heldSinceMs = this.known.clock.now();
      // What was told meanwhile is told of the release after which it was handed over.
      if (this.isHandedOver) this.wasFreed = false;
    }
    const next = this.line.shift();
    if (next !== undefined) {
      next.resume(true);
      return;
    }
    this.known.queues.delete(this.key);
    this.watch?.close();
    this.known.clock.clearTimeout(this.timer);
  }

  /** Notes that another process has the lock. */
  foundTaken(): void {
    if (this.heldSinceMs === undefined) this.rivalsUntilMs = this.known.clock.now() + RIVALRY_MS;
  }

  /**
   * Notes that the store is asked now: what it told before is of no use any more. Gives the id of the lock behind whose
   * release it is to be asked, if there is one.
   */
  asks(): string | undefined {
    this.wasFreed = false;
    const { released } = this;
    this.released = undefined;
    return released;
  }

  /**
   * Waits `delayMs`, the time until the next retry; shorter if the lock ends in `freeInMs`, or may have been freed, or if one
   * of those behind would ask earlier: nobody is to wait longer than if it had asked by itself.
   */
  async pause(
    delayMs: number,
    freeInMs: number | undefined,
    listens: boolean,
    cancellation: Cancellation | undefined,
  ): Promise<PauseEnd> {
    if (listens || this.line.some(({ waiter }) => waiter.listens)) this.listen();
    else this.watch?.next();
    if (this.wasFreed || !this.isGranting()) return "freed";
    const startMs = this.known.clock.now();
    const earlyMs = Math.min(freeInMs ?? Infinity, this.othersPaceMs(startMs));
    const ended = new Promise<PauseEnd>((resolve) => {
      this.pausing = { startMs, endMs: Infinity, timer: undefined, end: resolve };
    });
    if (earlyMs < delayMs) this.endPauseAfter(earlyMs, "early");
    else this.endPauseAfter(delayMs, "retry");
    try {
      const first = cancellation === undefined ? await ended : await cancellation.race(ended);
      return first === CANCELLED ? "retry" : first;
    } finally {
      this.known.clock.clearTimeout(this.pausing?.timer);
      this.pausing = undefined;
    }
  }

  /** Somebody has come: the pause of the first may be too long for it. */
  private hurry(waiter: Waiting): void {
    const { pausing } = this;
    if (pausing === undefined) return;
    if (waiter.listens && this.watch === undefined) this.listen();
    const endMs = pausing.startMs + paceMs(waiter.policy, 0, Math.random());
    const leftMs = Math.max(endMs - this.known.clock.now(), 0);
    if (endMs < pausing.endMs) this.endPauseAfter(leftMs, "early");
  }

  /** How long the most eager of those behind would pause who have waited until `nowMs`. */
  private othersPaceMs(nowMs: number): number {
    if (this.line.length === 0) return Infinity;
    const random = Math.random();
    return this.line.reduce(
      (least, { waiter }) => Math.min(least, paceMs(waiter.policy, nowMs - waiter.startMs, random)),
      Infinity,
    );
  }

  private endPauseAfter(delayMs: number, end: PauseEnd): void {
    const { pausing } = this;
    if (pausing === undefined) return;
    const { clock } = this.known;
    clock.clearTimeout(pausing.timer);
    pausing.endMs = clock.now() + delayMs;
    pausing.timer = clock.setTimeout(() => pausing.end(end), delayMs);
  }

  /** Asks to be told of the next release. */
  private listen(): void {
    this.watch ??= this.known.watch?.(this.key, () => this.told());
    this.watch?.next();
  }

  /**
   * Somebody in this process releases the lock with that id: the store has been asked to, or has answered (`isDone`).
   *
   * Where the store tells, all processes hear of it at the same time, and the one that releases has no advantage. But while
   * no other process seems to want the lock, waiting for the message would be in vain: then the next one here asks at once,
   * behind the release. From time to time all have the same chance, to find out.
   */
  releasing(lockId: string, isDone: boolean): void {
    this.heldSinceMs = undefined;
    if (this.watch?.isListening !== true) {
      if (isDone) this.freed();
    } else if (!isDone) {
      const nowMs = this.known.clock.now();
      const hasRivals = nowMs < this.rivalsUntilMs;
      this.isHandedOver = !hasRivals && nowMs - this.openedMs < HAND_OVER_MS;
      this.isOpened = !hasRivals && !this.isHandedOver && this.known.othersLagMs > 0;
      if (this.isHandedOver) {
        this.released = lockId;
        this.freed();
      } else {
        this.openedMs = nowMs;
      }
    }
  }

  /** The backend grants no more locks, or is being closed: those who wait are to ask, and be refused. */
  refuse(): void {
    this.freed();
  }

  private isGranting(): boolean {
    const { grants } = this.known;
    return grants === undefined || grants.phase === "granting";
  }

  /** The store tells that the lock was freed. */
  private told(): void {
    const isLate =
      this.isHandedOver &&
      this.heldSinceMs !== undefined &&
      this.known.clock.now() - this.heldSinceMs < LATE_MESSAGE_MS;
    if (isLate) {
      this.watch?.next();
    } else if (this.isOpened) {
      this.isOpened = false;
      this.known.clock.setTimeout(() => this.freed(), this.known.othersLagMs);
    } else {
      this.freed();
    }
  }

  private freed(): void {
    this.wasFreed = true;
    this.pausing?.end("freed");
  }

  /** One timer for all in the line: for the one whose time is over first. */
  private setTimer(endMs: number): void {
    if (endMs >= this.timerEndMs) return;
    this.known.clock.clearTimeout(this.timer);
    this.timerEndMs = endMs;
    const delayMs = Math.min(Math.max(endMs - this.known.clock.now(), 0), LONGEST_TIMER_MS);
    this.timer = this.known.clock.setTimeout(() => this.endLate(), delayMs);
  }

  private endLate(): void {
    this.timerEndMs = Infinity;
    const nowMs = this.known.clock.now();
    const late = this.line.filter(({ waiter }) => waiter.endMs <= nowMs);
    const left = this.line.filter(({ waiter }) => waiter.endMs > nowMs);
    this.line.splice(0, this.line.length, ...left);
    for (const place of late) place.resume(false);
    if (left.length > 0) this.setTimer(Math.min(...left.map(({ waiter }) => waiter.endMs)));
  }
}

/** Tells who waits for that lock that this process releases it: see {@link Queue.releasing}. */
export function releasing(backend: object, key: string, lockId: string, isDone: boolean): void {
  ifKnown(backend)?.queues.get(key)?.releasing(lockId, isDone);
}
