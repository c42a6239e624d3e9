/** How long a lock is held, and how its holder learns that it is lost. */

import { getEventListeners } from "node:events";
import { LockError } from "../native/errors.js";
import { onAbort } from "../native/signal.js";
import { ShortLivedMap } from "../native/short-lived-map.js";
import type { Clock } from "./clock.js";
import { isRemembered, warnOfForgotten } from "./forgotten.js";
import { reportLoss } from "./reports.js";
import { callAt } from "./timers.js";
import type { OnLost } from "./types.js";

/** What a lock is about, for the errors that say that it is lost. */
export type Ids = { readonly key: string; readonly lockId: string };

/** Those who extend a lock by heartbeats, and say when it is lost. */
export interface Keeper {
  /** The holder itself has extended the lock until `endMs`. */
  moved(endMs: number): void;
  /** The lock is released, or lost: nothing more is to be sent. */
  stop(): void;
  /** The same where nobody has told the store, and nobody will. */
  forget?(): void;
}

/**
 * One lock that is held. After `end`, nobody notices any more that it is lost, unless its release does.
 *
 * Somebody notices that it is lost if it has a keeper, who extends it, or once its signal was asked for.
 *
 * All times are of `clock.elapsed()`, so that nobody who sets a clock moves them.
 */
export class Holding {
  /** How many heartbeats have extended the lock; `undefined` without heartbeats. */
  extensions: number | undefined;
  /** Why the lock is lost, if it is. */
  loss: LockError | undefined;
  #keeper: Keeper | undefined;
  #controller: AbortController | undefined;
  /** Stops the timer that ends the lock. */
  #disarm: (() => void) | undefined;
  #isOver = false;
  /** Whether its handles were collected. */
  #isOrphan = false;
  /** Whether its release has found it gone. */
  #isGone = false;
  #expiresAtMs: number | undefined;
  #onLost: ((holding: Holding) => void) | undefined;
  /** Who is told that the lock is lost; `undefined` prints it. */
  tells: OnLost | undefined;
  /** Weak: while the lock is extended, nothing but its owner may keep a handle of it. */
  readonly #followers: WeakRef<{ expiresAtMs: number }>[] = [];
  /** Remove the listeners from other signals. */
  readonly #stops: (() => void)[] = [];

  /** @param endMs - when the lock ends unless it is extended */
  constructor(
    readonly ids: Ids,
    private endMs: number,
    private readonly clock: Clock,
  ) {}

  /** Aborted when the lock is lost. Without a keeper that is at its end. */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.loss !== undefined) this.#controller.abort(this.loss);
      else if (!this.#isOver) {
        held.set(this.ids.lockId, this);
        this.#arm();
      }
    }
    this.#look();
    return this.#controller.signal;
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
    if (stop !== undefined) this.#stops.push(stop);
    join(own);
    return controller.signal;
  }

  /** Leaves it to `keeper` to say when the lock is lost. */
  keptBy(keeper: Keeper): void {
    this.extensions = 0;
    this.#keeper = keeper;
    held.set(this.ids.lockId, this);
  }

  /** Keeps the `expiresAtMs` of a handle up to date. */
  follow(handle: { expiresAtMs: number }): void {
    this.#followers.push(new WeakRef(handle));
    if (this.#expiresAtMs !== undefined) handle.expiresAtMs = this.#expiresAtMs;
  }

  /** Calls `callback`, which must not refer to a handle, when the lock is lost. */
  onLost(callback: (holding: Holding) => void): void {
    this.#onLost = callback;
  }

  /** A heartbeat has made the lock end at this time of the store. */
  beat(expiresAtMs: number): void {
    this.extensions = (this.extensions ?? 0) + 1;
    this.#expiresAtMs = expiresAtMs;
    for (const follower of this.#followers) {
      const handle = follower.deref();
      if (handle !== undefined) handle.expiresAtMs = expiresAtMs;
    }
    if (this.#isOrphan) this.forget();
  }

  /** Its handles were collected. Whoever listens to its signal still works under the lock, and is asked at each heartbeat. */
  forget(): void {
    this.#isOrphan = true;
    if (this.#isOver || this.#isHeard()) return;
    warnOfForgotten(this.ids.key);
    this.#keeper?.forget?.();
    this.lose("the lock was lost: its handle was garbage-collected before it was released");
  }

  /** Whether somebody extends the lock. */
  get isExtended(): boolean {
    return this.#keeper !== undefined;
  }

  /** The holder itself has extended the lock until `endMs`; `undefined` if it turned out to be gone. */
  moved(endMs: number | undefined): void {
    if (endMs === undefined) {
      this.lose(GONE);
      return;
    }
    this.endMs = endMs;
    if (this.#keeper !== undefined) this.#keeper.moved(endMs);
    else if (this.#disarm !== undefined) this.#arm();
  }

  /**
   * The holder asks to have the lock extended until `endMs`. If that makes it shorter, it may end then from now on, also if
   * no answer comes. Call what is returned if nothing was sent.
   */
  endsBy(endMs: number): () => void {
    const beforeMs = this.endMs;
    if (this.#keeper !== undefined || !(endMs < beforeMs)) return () => undefined;
    this.moved(endMs);
    return () => this.moved(beforeMs);
  }

  /** When the lock ends; `undefined` if nobody extends it any more and the handles say when it ends. */
  ends(): number | undefined {
    if (this.#keeper === undefined) return this.endMs;
    return this.#isOver ? undefined : Infinity;
  }

  /** The lock is lost. */
  lose(message: string, cause?: unknown): void {
    this.loseWith(new LockError("LockLost", message, { ...this.ids, cause }));
  }

  /** The lock is lost for this reason. */
  loseWith(error: LockError): void {
    if (!this.#isOver) this.#lose(error);
  }

  /** Its release has found it gone: the work went on without it, whether somebody has put it out or its time was over. */
  gone(): void {
    if (this.loss !== undefined) return;
    this.#isGone = true;
    const isLate = this.#keeper === undefined && this.clock.elapsed() >= this.endMs;
    const why = isLate ? "its time was over" : "it was gone";
    this.#lose(
      new LockError("LockLost", `the lock was lost: ${why} when it was released`, this.ids),
    );
  }

  /**
   * Whether it was lost while it was held: its signal, if anybody has asked for it, is aborted, or its keeper has said so.
   * Whoever extends what was released asks the store.
   */
  isLost(): boolean {
    if (this.#controller !== undefined && !this.#isOver) this.#look();
    return this.loss !== undefined && !this.#isGone;
  }

  #lose(error: LockError): void {
    this.loss = error;
    if (!this.#isOver) this.#stop();
    this.#onLost?.(this);
    this.#controller?.abort(error);
    this.#removeListeners();
    reportLoss(error, this.ids, this.tells);
  }

  /** The lock is about to be released, so that it cannot be lost any more. */
  end(): void {
    if (this.#controller !== undefined) this.#look();
    if (!this.#isOver) this.#stop();
    this.#removeListeners();
  }

  #isHeard(): boolean {
    if (this.#controller === undefined) return false;
    const { signal } = this.#controller;
    try {
      return signal.onabort !== null || getEventListeners(signal, "abort").length > 0;
    } catch {
      // Not every runtime can tell.
      return true;
    }
  }

  #stop(): void {
    this.#isOver = true;
    this.#disarm?.();
    if (this.#keeper !== undefined) {
      this.#keeper.stop();
      isRemembered(this);
    }
    const { lockId } = this.ids;
    if (held.get(lockId) === this) held.delete(lockId);
  }

  #removeListeners(): void {
    for (const stop of this.#stops.splice(0)) stop();
  }

  /** Looks at the clock: in a process that was stopped, others may come here before the timer does. */
  #look(): void {
    if (this.#keeper === undefined && this.clock.elapsed() >= this.endMs) this.#endOfTime();
  }

  #endOfTime(): void {
    this.lose("the lock was lost: its time is over");
  }

  /** Starts the timer that ends the lock, or starts it anew. */
  #arm(): void {
    if (this.#keeper !== undefined) return;
    this.#disarm?.();
    this.#disarm = callAt(this.clock, this.endMs, () => this.#endOfTime());
  }
}

/** The locks that somebody has to hear of when they are released by their lock id. */
const held = new ShortLivedMap<string, Holding>();

/** Ends what is known of a lock before it is released, whoever releases it. */
export function endById(lockId: string): void {
  if (held.size > 0) held.get(lockId)?.end();
}

/** Notes that a lock was extended until `endMs`, whoever has done it; `undefined` if it turned out to be gone. */
export function movedById(lockId: string, endMs: number | undefined): void {
  if (held.size > 0) held.get(lockId)?.moved(endMs);
}

/** What is said of a lock that is not there when it is to be extended. */
export const GONE = "the lock was lost: the store no longer has it";
