/**
 * Waits for a lock on backends that do not wait themselves, which are users' own and that of `syncguard/testing`. Each waiter asks by
 * itself; there is no queue.
 */

import { LockError } from "../native/errors.js";
import type { Busy } from "../native/outcome.js";
import { messageOf } from "../native/thrown.js";
import type { Wait } from "../values/wait.js";
import { type Cancellation, CANCELLED } from "./cancellation.js";
import type { Clock, Timer } from "../values/clock.js";
import { createRetryState, type RetryState } from "../values/retry.js";

/** The result of an attempt that has found the lock held. */
export type Locked = {
  readonly ok: false;
  /** In how many milliseconds the lock ends by itself, if that is known. */
  readonly freeInMs?: number | undefined;
  /** What the store has said of the lock. */
  readonly busy?: Busy | undefined;
};

/** Hears when a lock may have been freed. */
export type Watch = {
  /** Asks to be told once. */
  next(): void;
  close(): void;
};

/** One wait: who asks, and how. */
export type Polling<T> = {
  readonly key: string;
  readonly clock: Clock;
  readonly wait: Wait;
  readonly cancellation: Cancellation | undefined;
  /** Asks once, for at most so many milliseconds. */
  readonly ask: (limitMs: number) => Promise<T | Locked>;
  /** Calls back when the lock may have been freed, if the backend can tell. */
  readonly watch?: (onFreed: () => void) => Watch;
  /** Called when somebody holds the lock, so that the wait goes on. */
  readonly onLocked?: () => void;
};

/**
 * Asks until the lock is granted.
 *
 * Math.random is taken from the global object at each use, as users' tests may replace it.
 */
export async function askUntilHeld<T extends { readonly ok: true }>(
  polling: Polling<T>,
): Promise<T> {
  const { key, clock, wait, cancellation, ask, onLocked } = polling;
  const retry = createRetryState(wait.policy);
  const backoff = new Backoff(polling);
  let failure: LockError | undefined;
  let busy: Busy | undefined;
  let elapsedMs = clock.now() - wait.startMs;
  let isHinted = false;
  try {
    for (;;) {
      wait.attempts += 1;
      let locked: Locked | undefined;
      let failed: LockError | undefined;
      try {
        const found = await ask(retry.attemptTimeoutMs(elapsedMs));
        if (found.ok) return found;
        locked = found;
      } catch (error) {
        cancellation?.check();
        failed = toLockError(error, key);
      }

      elapsedMs = clock.now() - wait.startMs;
      if (failed !== undefined && !(failure !== undefined && retry.isCut(failed.code, elapsedMs))) {
        failure = failed;
      }
      if (locked !== undefined) {
        wait.contended += 1;
        busy = locked.busy;
      }
      const delayMs = saying(busy, () => decide(retry, failed, failure, elapsedMs, isHinted));
      if (locked !== undefined) onLocked?.();
      const end = await backoff.pause(delayMs, locked?.freeInMs);
      isHinted = end !== "retry";
      if (end === "freed") wait.wakeups += 1;
      cancellation?.check();
      elapsedMs = clock.now() - wait.startMs;
    }
  } finally {
    backoff.close();
  }
}

/** Gives the result of `decide`. If it throws because the lock is held, the error says by whom and for how long. */
function saying(busy: Busy | undefined, decide: () => number): number {
  try {
    return decide();
  } catch (error) {
    if (busy === undefined || !(error instanceof LockError)) throw error;
    if (error.code !== "AcquisitionTimeout") throw error;
    throw new LockError(error.code, error.message, { ...error.context, ...busy });
  }
}

/** How long to wait until the next retry; throws if there is none. */
function decide(
  retry: RetryState,
  failed: LockError | undefined,
  last: LockError | undefined,
  elapsedMs: number,
  isHinted: boolean,
): number {
  const decision = retry.after(failed?.code ?? null, elapsedMs, Math.random(), isHinted);
  if (typeof decision === "number") return decision;
  // From here on, the wait is given up because the store failed.
  if (last === undefined) throw new LockError("Internal", "no attempt has failed");
  if (decision === "") throw last;
  const { code, message, context, cause } = last;
  throw new LockError(code, decision + message, { ...context, cause });
}

/** What ended a pause: the next retry is due, a message said that the lock was freed, or the lock has ended by itself. */
type PauseEnd = "retry" | "freed" | "early";

/** The wait between two attempts, which a wake-up ends. */
class Backoff {
  #watch: Watch | undefined;
  #wasFreed = false;
  #end: ((end: PauseEnd) => void) | undefined;

  constructor(private readonly polling: Polling<unknown>) {}

  /** Waits until the next retry, or until the lock ends by itself or may have been freed. */
  async pause(delayMs: number, freeInMs: number | undefined): Promise<PauseEnd> {
    const { clock, cancellation, wait, watch } = this.polling;
    let timer: Timer | undefined;
    const ended = new Promise<PauseEnd>((resolve) => {
      this.#end = resolve;
      const isEarly = freeInMs !== undefined && freeInMs < delayMs;
      const ms = isEarly ? freeInMs : delayMs;
      timer = clock.setTimeout(() => resolve(isEarly ? "early" : "retry"), ms);
      if (wait.policy.wait !== "poll") {
        this.#watch ??= watch?.(() => this.#freed());
        this.#watch?.next();
      }
      if (this.#wasFreed) resolve("freed");
    });
    try {
      const first = cancellation === undefined ? await ended : await cancellation.race(ended);
      return first === CANCELLED ? "retry" : first;
    } finally {
      clock.clearTimeout(timer);
      this.#end = undefined;
      this.#wasFreed = false;
    }
  }

  close(): void {
    this.#watch?.close();
  }

  #freed(): void {
    if (this.#end === undefined) this.#wasFreed = true;
    else this.#end("freed");
  }
}

/** A backend's failure as a LockError. The message of a foreign error is kept. */
function toLockError(error: unknown, key: string): LockError {
  if (error instanceof LockError) return error;
  return new LockError("Internal", messageOf(error), { key, cause: error });
}
