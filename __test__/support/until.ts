import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";

/** Waits until `condition` holds; fails after `deadlineMs` milliseconds. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  deadlineMs = 10_000,
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
