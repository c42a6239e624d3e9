/**
 * Finds out how long the machine was suspended. On Linux, `performance.now()` stands still meanwhile, and the stores' clocks go on.
 * Elsewhere it goes on, too: libuv reads `mach_continuous_time()` on macOS and `QueryPerformanceCounter()` on Windows. The core has the
 * same for itself in `clock.rs`.
 */

import { uptime } from "node:os";

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
export function suspendedMs(nowMs: number): number {
  if (startMs === undefined) return 0;
  const skew = wall() - nowMs;
  if (Math.abs(skew - skewMs) > SUSPICIOUS_MS) {
    skewMs = skew;
    const ms = uptime() * 1_000 - awake() - startMs;
    if (ms > SHORTEST_MS && ms > longestMs) longestMs = ms;
  }
  return longestMs;
}
