/** Reads how a lock is waited for, and keeps what one wait has taken until now. */

import { invalid } from "../options/validation.js";
import type { RetryPolicy } from "../native/exports.js";

/** In the order in which the addon numbers them. */
const BACKOFFS: readonly string[] = ["exponential", "fixed"];
const JITTERS: readonly string[] = ["equal", "full", "none"];
const WAITS: readonly string[] = ["notify", "poll", "notify-only"];

/** The options that are numbers, and those that are texts, in the order in which they are checked. */
const NUMBERS = ["maxRetries", "retryDelayMs", "maxRetryDelayMs", "timeoutMs"] as const;
const TEXTS = ["backoff", "jitter"] as const;

/** What ends the pause between two attempts: news of a release from the store, or only the time of the next retry. */
export type WaitFor = "notify" | "poll" | "notify-only";

type RetryOptions = RetryPolicy & { maxRetryDelayMs: number; wait?: WaitFor };

/** How long and how often to try; times in milliseconds. */
export class Policy {
  readonly maxRetries: number;
  readonly retryDelayMs: number;
  readonly maxRetryDelayMs: number;
  readonly timeoutMs: number;
  readonly backoff: RetryPolicy["backoff"];
  readonly jitter: RetryPolicy["jitter"];
  readonly wait: WaitFor;
  #numbers: Float64Array | undefined;

  /**
   * @throws LockError `InvalidArgument` that names the option
   */
  static of(options: RetryOptions): Policy {
    check(options);
    return new Policy(options);
  }

  private constructor(options: RetryOptions) {
    this.maxRetries = options.maxRetries;
    this.retryDelayMs = options.retryDelayMs;
    this.maxRetryDelayMs = options.maxRetryDelayMs;
    this.timeoutMs = options.timeoutMs;
    this.backoff = options.backoff;
    this.jitter = options.jitter;
    this.wait = options.wait ?? "notify";
  }

  /** Whether there is a wait at all, and not only one attempt. */
  get waits(): boolean {
    return this.timeoutMs > 0 && this.maxRetries > 0;
  }

  /** As the addon takes it: `policy` in crates/syncguard-node/src/convert/policy.rs reads it. */
  get numbers(): Float64Array {
    return (this.#numbers ??= Float64Array.of(
      this.maxRetries,
      this.retryDelayMs,
      this.maxRetryDelayMs,
      this.timeoutMs,
      BACKOFFS.indexOf(this.backoff),
      JITTERS.indexOf(this.jitter),
      WAITS.indexOf(this.wait),
    ));
  }
}

/** One wait for a lock, and what it has taken until now. */
export type Wait = {
  readonly policy: Policy;
  /** When it began, by the clock. */
  readonly startMs: number;
  /** How many times the store was asked. */
  attempts: number;
  /** How many of these attempts have found the lock held. */
  contended: number;
  /** How many times it was told that the lock may be free. */
  wakeups: number;
  /** How long ago the store was asked for the lock that it has granted, in milliseconds. */
  lastMs: number | undefined;
};

function checkTypes(options: RetryOptions): void {
  for (const name of NUMBERS) {
    if (typeof options[name] !== "number") throw invalid(`${name} must be a number`);
  }
  for (const name of TEXTS) {
    if (typeof options[name] !== "string") throw invalid(`${name} must be a string`);
  }
}

function check(options: RetryOptions): void {
  checkTypes(options);
  const { maxRetries, retryDelayMs, maxRetryDelayMs, timeoutMs, backoff, jitter, wait } = options;
  if (!BACKOFFS.includes(backoff)) throw invalid('backoff must be "exponential" or "fixed"');
  if (!JITTERS.includes(jitter)) throw invalid('jitter must be "equal", "full" or "none"');
  if (wait !== undefined && !WAITS.includes(wait))
    throw invalid('wait must be "notify", "notify-only" or "poll"');
  if (!(maxRetries >= 0 && (maxRetries === Infinity || Number.isInteger(maxRetries)))) {
    throw invalid("maxRetries must be a non-negative integer");
  }
  if (!(retryDelayMs >= 0 && retryDelayMs < Infinity)) {
    throw invalid("retryDelayMs must be a non-negative number");
  }
  if (!(maxRetryDelayMs > 0)) throw invalid("maxRetryDelayMs must be a positive number");
  if (!(timeoutMs >= 0)) throw invalid("timeoutMs must be a non-negative number");
}

/** A wait that begins now. */
export function beginWait(policy: Policy, nowMs: number): Wait {
  return { policy, startMs: nowMs, attempts: 0, contended: 0, wakeups: 0, lastMs: undefined };
}
