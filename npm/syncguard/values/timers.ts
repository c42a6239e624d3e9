/** Timers that keep no process alive. */

import { LONGEST_TIMER_MS } from "../options/validation.js";
import type { Clock, Timer } from "./clock.js";

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

/** Calls `run`, which never rejects. After `timeoutMs`, aborts its signal and stops waiting. */
export function endWithin(
  clock: Clock,
  timeoutMs: number,
  run: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  return new Promise((resolve) => {
    const controller = new AbortController();
    const timer = clock.setTimeout(
      () => {
        controller.abort();
        resolve();
      },
      Math.min(timeoutMs, LONGEST_TIMER_MS),
    );
    void run(controller.signal).then(() => {
      clock.clearTimeout(timer);
      resolve();
    });
  });
}
