import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";

/** Waits until `condition` holds; fails after `deadlineMs` milliseconds. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  deadlineMs = 60_000,
): Promise<void> {
  const start = performance.now();
  while (!(await condition())) {
    const elapsedMs = performance.now() - start;
    if (elapsedMs > deadlineMs) throw new Error(`did not come true within ${deadlineMs} ms`);
    // At most a tenth late, and without keeping a core busy with what takes seconds.
    await sleep(Math.min(Math.max(elapsedMs / 10, 1), 20));
  }
}

/** Lets everything run that is ready to run. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 5; turn += 1) await nextTurn();
}

/**
 * Whether `promise` settles before a timer of so many milliseconds that is started now. A process that gets no share of the
 * processor is late with both, so their order tells more than a clock does.
 */
export async function settlesWithin(promise: Promise<unknown>, ms: number): Promise<boolean> {
  const late = sleep(ms).then(async () => {
    // What has come meanwhile is told after the timers, on the turns that follow.
    await settle();
    return false;
  });
  const settled = promise.then(
    () => true,
    () => true,
  );
  return await Promise.race([settled, late]);
}
