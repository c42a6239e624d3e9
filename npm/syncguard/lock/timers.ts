/** Timers that keep no process alive. */

/** The longest wait that setTimeout supports: it does not wait at all for longer ones. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

/**
 * Calls `run` at a time of `performance.now()`, unless the returned function is called before.
 *
 * The clock and the timers are taken from the global object at each use: users' fake timers work.
 */
export function callAt(timeMs: number, run: () => void): () => void {
  let timer: NodeJS.Timeout;
  const wait = (): void => {
    const leftMs = Math.max(0, timeMs - performance.now());
    timer = setTimeout(leftMs > LONGEST_TIMER_MS ? wait : run, Math.min(leftMs, LONGEST_TIMER_MS));
    timer.unref?.();
  };
  wait();
  return () => clearTimeout(timer);
}
