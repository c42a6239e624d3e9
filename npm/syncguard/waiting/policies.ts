/** How each function waits where its caller asks for nothing else. */

import { constants } from "../native/constants.js";
import { Policy } from "../values/wait.js";

/** How `lock()` waits, and what `createLock()` makes. They wait as in 2.x, which gives up after a few retries. */
export const CALLBACK_WAITING = Policy.of({ ...constants.retry, maxRetryDelayMs: Infinity });

/** How `backend.lock()` waits: until the time is over, however many attempts that takes. */
export const METHOD_WAITING = Policy.of({
  ...constants.retry,
  maxRetries: Infinity,
  maxRetryDelayMs: constants.maxRetryDelayMs,
});

/**
 * How a campaign of `lead()` waits. It does so as `backend.lock()`, and ends after a while, so that a store that cannot be reached is
 * reported.
 */
export const CAMPAIGNING = Policy.of({
  ...constants.retry,
  maxRetries: Infinity,
  maxRetryDelayMs: constants.maxRetryDelayMs,
  timeoutMs: 2 * constants.maxRetryDelayMs,
});

/** How a campaign waits after one that has found that somebody else leads. Then the store can be reached, and need not be asked often. */
export const FOLLOWING = Policy.of({
  ...constants.retry,
  maxRetries: Infinity,
  retryDelayMs: constants.maxRetryDelayMs,
  maxRetryDelayMs: constants.maxRetryDelayMs,
  timeoutMs: 2 * constants.maxRetryDelayMs,
});
