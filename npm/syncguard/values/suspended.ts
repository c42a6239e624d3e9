/**
 * How long the machine was suspended. `performance.now()` stands still meanwhile on Linux, and the stores' clocks go on; elsewhere it goes
 * on, too. The core has the same for itself in `clock.rs`.
 */

import { uptime } from "node:os";

// Not those of users' fake timers, which know nothing of the machine.
const wall = Date.now.bind(Date);
const awake = performance.now.bind(performance);

/** Others get a lock so long after its end, and `uptime()` may know whole seconds only: what is shorter does not count. */
const SHORTEST_MS = 1_000;
/** By how much the clock on the wall must have gone ahead or back for the machine to be asked. */
const SUSPICIOUS_MS = 100;

const startMs = start();
let skewMs = wall() - awake();
let longestMs = 0;

/** By how much `uptime()`, which counts suspensions, is ahead of {@link awake}; `undefined` where it is not asked. */
function start(): number | undefined {
  // Deno would have to be allowed to tell.
  if (process.platform !== "linux" || "Deno" in globalThis) return undefined;
  try {
    // Read last: whatever goes by between the two is no suspension.
    return -awake() + uptime() * 1_000;
  } catch {
    return undefined;
  }
}

/**
 * Milliseconds that the machine was suspended since this module was loaded; never becomes less. The machine is asked only if the clock
 * on the wall has jumped, as it does in a suspension, because that takes longer. Whoever sets that clock moves nothing by it.
 *
 * @param nowMs - what `performance.now()` is
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
