/** Timers that keep no process alive. */

import type { Clock, Timer } from "./clock.js";

/** The longest wait that setTimeout supports: it does not wait at all for longer ones. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** Calls `run` at a time of `clock.elapsed()`, unless the returned function is called before. */
export function callAt(clock: Clock, timeMs: number, run: () => void): () => void {
  let timer: Timer;
  const wait = (): void => {
    const leftMs = Math.max(0, timeMs - clock.elapsed());
    timer = clock.setTimeout(
      leftMs > LONGEST_TIMER_MS ? wait : run,
      Math.min(leftMs, LONGEST_TIMER_MS),
    );
    timer.unref?.();
  };
  wait();
  return () => clock.clearTimeout(timer);
}
