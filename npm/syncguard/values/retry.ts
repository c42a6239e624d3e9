/** Decides when to try again, for the loop in JavaScript. The rules are those of the core, which crates/syncguard/src/waiting/retry.rs explains. */

import { LONGEST_TIMER_MS } from "../options/validation.js";
import { LockError, type LockErrorCode } from "../native/errors.js";
import type { Policy } from "./wait.js";

/** An attempt gets at least so long. */
const SHORTEST_MS = 100;

/** The state of one wait. It has no clock, no random numbers and no timer: the loop passes them in. */
export type RetryState = {
  /** How long an attempt may take that starts `elapsedMs` after the beginning. */
  attemptTimeoutMs(elapsedMs: number): number;
  /** Whether an attempt that failed in this way was only cut short by its own time limit. */
  isCut(failedWith: LockErrorCode, elapsedMs: number): boolean;
  /**
   * Decides after an attempt that gave no lock; `isHinted` if it was made before its time. A number is how many milliseconds to
   * wait before the next one. A text means to give up and report the failure, with this text before its message.
   *
   * @throws LockError `AcquisitionTimeout` when others held the lock for too long
   */
  after(
    failedWith: LockErrorCode | null,
    elapsedMs: number,
    random: number,
    isHinted: boolean,
  ): number | string;
};

export function createRetryState(policy: Policy): RetryState {
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
}

/** Whether the wait goes on after this failure. */
function passes(failedWith: LockErrorCode | null): boolean {
  return (
    failedWith === null || failedWith === "ServiceUnavailable" || failedWith === "NetworkTimeout"
  );
}

/** How long to wait after that many retries. */
export function delayMs(
  { retryDelayMs, maxRetryDelayMs, backoff, jitter }: Policy,
  retries: number,
  random: number,
): number {
  const grown = backoff === "fixed" ? retryDelayMs : retryDelayMs * 2 ** Math.min(retries, 1_000);
  const whole = Math.min(grown, Math.max(maxRetryDelayMs, retryDelayMs));
  if (jitter === "none") return whole;
  return jitter === "full" ? random * whole : (whole + random * whole) / 2;
}
