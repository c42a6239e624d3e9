/** Sends heartbeats by JavaScript's timers, for backends that do not send them by themselves. The core does so for its own stores. */

import { isError } from "../native/thrown.js";
import type { HeartbeatOptions } from "../values/auto-extend.js";
import type { Clock } from "../values/clock.js";
import type { Heartbeats } from "./extended.js";
import type { LeaseOperations } from "./internals.js";
import type { Lease } from "./lease.js";
import { goneLock } from "../values/mutation.js";
import { callAt } from "../values/timers.js";
import type { ExtendResult, LockOp, LocksOp } from "../values/types.js";

/** After a failure, the next try comes when about this part of the time that is left has passed. */
const RETRIES = 4;
/** The shortest pause between two tries. */
const SHORTEST_PAUSE_MS = 10;

type Extending = Pick<LeaseOperations, "extend">;

/** How the heartbeats of a lock extend it. */
export type Beating = {
  readonly ttlMs: number;
  /** When its acquisition was started, by `clock.elapsed()`. */
  readonly startedMs: number;
  readonly autoExtend: HeartbeatOptions;
};

/**
 * Extends a lock until it is released or lost.
 *
 * There is no limit for a hanging event loop: while it hangs, these timers do not run either.
 *
 * @param handle - the lock ends once this handle and all its others were collected as garbage
 */
export function startHeartbeats(
  leases: Extending,
  handle: object,
  lease: Lease,
  beating: Beating,
): void {
  const heartbeats = new TimedHeartbeats(leases, lease, beating);
  lease.extendedBy(heartbeats);
  lease.follow(handle);
  heartbeats.start();
}

class TimedHeartbeats implements Heartbeats {
  private readonly clock: Clock;
  /** When the lock is lost in any case, by `maxMs`. */
  private readonly limitMs: number;
  private endMs: number;
  private failure: unknown;
  private stopBeat: (() => void) | undefined;
  private stopEnd: (() => void) | undefined;
  /** Cancels the heartbeat that is on its way. */
  private running: AbortController | undefined;
  /** Resolves when the heartbeat that is on its way has ended. */
  private settled: Promise<void> | undefined;
  /** Whether no more heartbeats are to be sent. */
  private isEnding = false;
  /** Whether the holder has extended the lock while a heartbeat was on its way: the backend may have carried out either of them last. */
  private crossed = false;
  private isOver = false;
  /** Called once the heartbeats are over, for whoever waits in `settle()`. */
  private ended: (() => void) | undefined;

  constructor(
    private readonly leases: Extending,
    private readonly lease: Lease,
    private readonly beating: Beating,
  ) {
    const { ttlMs, startedMs, autoExtend } = beating;
    this.clock = lease.clock;
    this.limitMs = startedMs + autoExtend.maxMs;
    this.endMs = Math.min(startedMs + ttlMs, this.limitMs);
  }

  /** Sets the timers of the end and of the next heartbeat anew. */
  start(): void {
    this.stopEnd?.();
    this.stopEnd = callAt(this.clock, this.endMs, () => this.lose());
    this.stopBeat?.();
    if (this.running !== undefined || this.isEnding || this.isFinal) return;
    const { ttlMs, autoExtend } = this.beating;
    this.beatAt(this.endMs - (ttlMs - autoExtend.everyMs));
  }

  moved(movedMs: number): void {
    this.crossed = this.running !== undefined;
    const endMs = this.crossed ? Math.min(this.endMs, movedMs) : movedMs;
    this.endMs = Math.min(endMs, this.limitMs);
    this.start();
  }

  mayEnd(movedMs: number): void {
    if (movedMs < this.endMs) this.moved(movedMs);
  }

  look(): void {
    if (this.clock.elapsed() >= this.endMs) this.lose();
  }

  async settle(): Promise<void> {
    this.isEnding = true;
    this.stopBeat?.();
    if (this.running === undefined || this.isOver) return;
    // A user's own backend may never answer.
    const end = new Promise<void>((resolve) => {
      this.ended = resolve;
    });
    await Promise.race([this.settled, end]);
  }

  stop(): void {
    this.isOver = true;
    this.stopBeat?.();
    this.stopEnd?.();
    this.running?.abort();
    this.ended?.();
  }

  /** Whether the lock cannot be extended any further: TTLs are whole milliseconds, and less than one is left until the limit. */
  private get isFinal(): boolean {
    return this.limitMs - this.endMs < 1;
  }

  private beatAt(timeMs: number): void {
    this.stopBeat = callAt(this.clock, timeMs, () => this.send());
  }

  private lose(): void {
    const { failure, lease } = this;
    if (failure !== undefined) {
      const why = isError(failure) ? `: ${failure.message}` : "";
      lease.lose(`the lock was lost: it could not be extended before its end${why}`, failure);
    } else if (this.isFinal) {
      lease.lose("the lock was lost: it has been held for as long as autoExtend allows");
    } else {
      lease.lose("the lock was lost: its end passed before it could be extended");
    }
  }

  private send(): void {
    const sentMs = this.clock.elapsed();
    // In a process that was stopped meanwhile, this timer may run before the one of the end.
    if (sentMs >= this.endMs) {
      this.lose();
      return;
    }
    const wantedMs = Math.min(this.beating.ttlMs, Math.floor(this.limitMs - sentMs));
    if (wantedMs >= 1) this.settled = this.extend(wantedMs, sentMs);
  }

  private async extend(ttlMs: number, sentMs: number): Promise<void> {
    const controller = new AbortController();
    this.running = controller;
    this.crossed = false;
    try {
      const { ids } = this.lease;
      const { signal } = controller;
      const result = await this.leases.extend(this.lease, ttlMs, signal);
      if (this.isOver) return;
      this.running = undefined;
      if (result.ok) this.extended(result.expiresAtMs, sentMs + ttlMs);
      else this.notExtended(result, ids);
    } catch (error) {
      if (this.isOver) return;
      this.running = undefined;
      this.failed(error);
    }
  }

  private extended(expiresAtMs: number, endMs: number): void {
    this.failure = undefined;
    const extendedMs = Math.min(endMs, this.limitMs);
    this.endMs = this.crossed ? Math.min(extendedMs, this.endMs) : extendedMs;
    this.lease.beat(expiresAtMs);
    this.start();
  }

  private notExtended(result: ExtendResult, ids: LockOp | LocksOp): void {
    const gone = goneLock(result, ids);
    if (gone === undefined || this.lease.lockIds.includes(gone)) this.lease.lostInStore(gone);
    // Somebody has released that lock by its id meanwhile, so nothing was extended. Ask for the others.
    else if (!this.isEnding) this.send();
  }

  private failed(error: unknown): void {
    this.failure = error;
    if (this.isEnding) return;
    const nowMs = this.clock.elapsed();
    const pauseMs = ((this.endMs - nowMs) / RETRIES) * (0.75 + Math.random() / 2);
    this.beatAt(nowMs + Math.max(pauseMs, SHORTEST_PAUSE_MS));
  }
}
