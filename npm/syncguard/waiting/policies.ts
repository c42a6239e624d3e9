/** How one waits where nothing else is asked for. */

import { constants } from "../native/constants.js";
import { Policy } from "../native/wait.js";

/** In `lock()` and what `createLock()` gives: as in 2.x, also where it gives up early. */
export const CALLBACK_WAITING = Policy.of({ ...constants.retry, maxRetryDelayMs: Infinity });

/** In `backend.lock()`: until the time is over, however many attempts that takes. */
export const METHOD_WAITING = Policy.of({
  ...constants.retry,
  maxRetries: Infinity,
  maxRetryDelayMs: constants.maxRetryDelayMs,
});

/**
 * One campaign of `lead()`: as `backend.lock()` waits. It is not for ever, so that a store that cannot be reached is reported after that
 * time.
 */
export const CAMPAIGNING = Policy.of({
  ...constants.retry,
  maxRetries: Infinity,
  maxRetryDelayMs: constants.maxRetryDelayMs,
  timeoutMs: 2 * constants.maxRetryDelayMs,
});

/** One campaign after another that has only found that somebody else leads: the store is there, and need not be asked often. */
export const FOLLOWING = Policy.of({
  ...constants.retry,
  maxRetries: Infinity,
  retryDelayMs: constants.maxRetryDelayMs,
  maxRetryDelayMs: constants.maxRetryDelayMs,
  timeoutMs: 2 * constants.maxRetryDelayMs,
});
