import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";

/** Waits until `condition` holds; fails after `deadlineMs` milliseconds. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  deadlineMs = 10_000,
): Promise<void> {
  const end = performance.now() + deadlineMs;
  while (!(await condition())) {
    if (performance.now() > end) throw new Error(`did not come true within ${deadlineMs} ms`);
    await sleep(2);
  }
}

/** Lets everything run that is ready to run. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 5; turn += 1) await nextTurn();
}
