/** The time by which locks are waited for and held. */

import { uptime } from "node:os";

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

/*
 * `performance.now()` stands still while the machine is suspended on Linux, and the stores' clocks go on. Elsewhere it goes on, too: libuv
 * reads `mach_continuous_time()` on macOS and `QueryPerformanceCounter()` on Windows. The core has the same for itself in `clock.rs`.
 */

// Taken when the module is loaded, because users' fake timers know nothing of the machine.
const wall = Date.now.bind(Date);
const awake = performance.now.bind(performance);

/** Shorter suspensions do not count: others get a lock only this long after its end, and `uptime()` may know whole seconds only. */
const SHORTEST_MS = 1_000;
/** The machine is asked if the wall clock has jumped by more than this. */
const SUSPICIOUS_MS = 100;

const startMs = start();
let skewMs = wall() - awake();
let longestMs = 0;

/** By how much `uptime()`, which counts suspensions, is ahead of {@link awake}; `undefined` where it is not asked. */
function start(): number | undefined {
  // Deno would ask the user for a permission.
  if (process.platform !== "linux" || "Deno" in globalThis) return undefined;
  try {
    // `uptime()` is read last, so that the time between the two readings does not count as a suspension.
    return -awake() + uptime() * 1_000;
  } catch {
    return undefined;
  }
}

/**
 * How many milliseconds the machine was suspended since this module was loaded. It never becomes less. To ask the machine takes long, so
 * that is done only if the wall clock has jumped, as it does in a suspension. Setting that clock changes nothing else.
 *
 * @param nowMs - the present value of `performance.now()`
 */
function suspendedMs(nowMs: number): number {
  if (startMs === undefined) return 0;
  const skew = wall() - nowMs;
  if (Math.abs(skew - skewMs) > SUSPICIOUS_MS) {
    skewMs = skew;
    const ms = uptime() * 1_000 - awake() - startMs;
    if (ms > SHORTEST_MS && ms > longestMs) longestMs = ms;
  }
  return longestMs;
}
