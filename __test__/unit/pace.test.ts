import { expect, test } from "vitest";
import { paceMs } from "../../npm/syncguard/lock/pace";

const exponential = {
  maxRetries: Infinity,
  retryDelayMs: 100,
  maxRetryDelayMs: 5_000,
  backoff: "exponential",
  jitter: "none",
  timeoutMs: 5_000,
} as const;
const fixed = { ...exponential, backoff: "fixed", jitter: "equal", maxRetries: 3 } as const;

/** The same table as in `crates/syncguard/src/waiting/retry/tests.rs`. */
test("the pace is that of one who asks by itself", () => {
  for (const [elapsedMs, expected] of [
    [-1, 100],
    [0, 100],
    [99, 100],
    [100, 200],
    [299, 200],
    [300, 400],
    [6_300, 5_000],
    [1e12, 5_000],
  ] as const) {
    expect(paceMs(exponential, elapsedMs, 0.5)).toBe(expected);
  }
  for (const [elapsedMs, expected] of [
    [0, 75],
    [299, 75],
    [300, Infinity],
  ] as const) {
    expect(paceMs(fixed, elapsedMs, 0.5)).toBe(expected);
  }
  const restless = { ...fixed, retryDelayMs: 0 };
  expect(paceMs(restless, 0, 0.5)).toBe(10);
  expect(paceMs(restless, 1, 0.5)).toBe(Infinity);
  const tireless = { ...restless, maxRetries: Infinity };
  expect(paceMs(tireless, 1, 0.5)).toBe(10);
  expect(paceMs({ ...tireless, backoff: "exponential" }, 1, 0.5)).toBe(10);
});
