/** When to try again: the rules of the core, which crates/syncguard/src/waiting/retry.rs explains. */

import { LockError, type LockErrorCode } from "../native/errors.js";
import type { Core } from "../native/provided.js";
import { invalid } from "../options/validation.js";
import { delayMs } from "../lock/pace.js";
import { LONGEST_TIMER_MS } from "../lock/timers.js";

/** An attempt gets at least so long. */
const SHORTEST_MS = 100;

export const createRetryState: Core["createRetryState"] = (policy) => {
  check(policy);
  const { maxRetries, timeoutMs } = policy;
  let retries = 0;
  let attemptEndsMs = 0;
  let retryAtMs = 0;
  let lastSeen: "nothing" | "contention" | "failure" = "nothing";

  const attemptTimeoutMs = (elapsedMs: number): number => {
    const limitMs = Math.max(timeoutMs - elapsedMs, SHORTEST_MS);
    attemptEndsMs = elapsedMs + limitMs;
    return limitMs;
  };
  const isCut = (failedWith: LockErrorCode, elapsedMs: number): boolean =>
    failedWith === "NetworkTimeout" && elapsedMs + 1 >= attemptEndsMs;
  const effort = (elapsedMs: number): string => {
    const attempts = retries + 1;
    return `${elapsedMs.toFixed(0)} ms and ${attempts} attempt${attempts === 1 ? "" : "s"}`;
  };
  const giveUp = (elapsedMs: number, isLast: boolean): string => {
    if (lastSeen !== "contention") {
      return retries === 0 ? "" : `gave up after ${effort(elapsedMs)}: `;
    }
    throw new LockError(
      "AcquisitionTimeout",
      isLast
        ? `Failed to acquire lock after ${effort(elapsedMs)}: maxRetries allows no more attempts, and somebody holds the lock`
        : `Timeout reached before next retry (${elapsedMs.toFixed(0)} ms elapsed): timeoutMs is over, and somebody holds the lock`,
    );
  };
  const see = (failedWith: LockErrorCode | null, elapsedMs: number): void => {
    if (failedWith === null) lastSeen = "contention";
    else if (!isCut(failedWith, elapsedMs)) lastSeen = "failure";
  };
  attemptTimeoutMs(0);
  return {
    attemptTimeoutMs,
    isCut,
    after(failedWith, elapsedMs, random, isHinted) {
      see(failedWith, elapsedMs);
      if (!passes(failedWith)) return "";
      const untilRetryMs = retryAtMs - elapsedMs;
      if (isHinted && untilRetryMs > 0) return untilRetryMs;
      const leftMs = timeoutMs - elapsedMs;
      const isLast = retries >= maxRetries;
      if (isLast || leftMs <= 0) return giveUp(elapsedMs, isLast);
      retries += 1;
      const waitMs = Math.min(
        Math.max(Math.min(delayMs(policy, retries - 1, random), leftMs), 0),
        LONGEST_TIMER_MS,
      );
      retryAtMs = elapsedMs + waitMs;
      return waitMs;
    },
  };
};

/** Whether waiting goes on after that. */
function passes(failedWith: LockErrorCode | null): boolean {
  return (
    failedWith === null || failedWith === "ServiceUnavailable" || failedWith === "NetworkTimeout"
  );
}

function check(policy: Parameters<Core["createRetryState"]>[0]): void {
  const { maxRetries, retryDelayMs, backoff, jitter, timeoutMs, maxRetryDelayMs } = policy;
  if (backoff !== "exponential" && backoff !== "fixed") {
    throw invalid('backoff must be "exponential" or "fixed"');
  }
  if (jitter !== "equal" && jitter !== "full" && jitter !== "none") {
    throw invalid('jitter must be "equal", "full" or "none"');
  }
  if (!(maxRetries >= 0 && (maxRetries === Infinity || Number.isInteger(maxRetries)))) {
    throw invalid("maxRetries must be a non-negative integer");
  }
  if (!(retryDelayMs >= 0 && retryDelayMs < Infinity)) {
    throw invalid("retryDelayMs must be a non-negative number");
  }
  if (!(maxRetryDelayMs > 0)) throw invalid("maxRetryDelayMs must be a positive number");
  if (!(timeoutMs >= 0)) throw invalid("timeoutMs must be a non-negative number");
}
