/** The time by which locks are waited for and held. */

import { suspendedMs } from "./suspended.js";

/** A clock and its timers. */
export interface Clock {
  /** Milliseconds since the Unix epoch. */
  now(): number;
  /** Milliseconds since some moment. Nobody can set this back. */
  elapsed(): number;
  /** Calls `run` once, after `ms` milliseconds. */
  setTimeout(run: () => void, ms: number): Timer;
  /** Forgets a timer that has not been due yet. */
  clearTimeout(timer: Timer | undefined): void;
}

/** What `setTimeout` of a clock returns. */
export type Timer = {
  /** Lets the process end before the timer is due. */
  unref?: () => unknown;
};

/**
 * The process's own clock.
 *
 * Its functions are taken from the global object at each use: users' fake timers work.
 */
export const systemClock: Clock = {
  now: () => Date.now(),
  elapsed: () => {
    const nowMs = performance.now();
    return nowMs + suspendedMs(nowMs);
  },
  setTimeout: (run, ms) => setTimeout(run, ms),
  clearTimeout: (timer) => clearTimeout(timer as NodeJS.Timeout | undefined),
};

/** When a lock ends by `clock.elapsed()`, if it ends at `expiresAtMs` by its backend's clock. */
export function endOf(expiresAtMs: number, clock: Clock): number {
  return clock.elapsed() + expiresAtMs - clock.now();
}
