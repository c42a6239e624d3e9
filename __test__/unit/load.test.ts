/** The load of the tests of faults, on a backend that refuses everything at once. */

import { setImmediate as nextTurn } from "node:timers/promises";
import { afterAll, expect, test } from "vitest";
import { load } from "../support/load";
import type { Backend } from "../support/suite";
import { until } from "../support/until";

let attempts = 0;
const acquire = (): Promise<never> => {
  attempts += 1;
  return Promise.reject(Object.assign(new Error("closed"), { code: "InvalidArgument" }));
};

afterAll(async () => {
  // The test has ended, so nobody asks any more.
  const before = attempts;
  await nextTurn();
  await nextTurn();
  expect(attempts).toBe(before);
});

test("timers go on, and the load ends with the test", async () => {
  const { failed } = load({ acquire } as unknown as Backend);
  await until(() => failed.length > 100);
  expect(attempts).toBeGreaterThan(100);
});
