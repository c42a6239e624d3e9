/** What `lock()` and the backends of this package tell each other, hidden from users. */

/** One attempt of `lock()`. */
export type Attempt = {
  /** How long it may take, in milliseconds, so that it ends in time when the store hangs. */
  readonly limitMs: number;
  /** The id of a lock whose release has been started, and behind which the store is to be asked. */
  readonly behind: string | undefined;
  /** When the waiting began, by the clock. */
  readonly startMs: number;
  /** How many there have been, with this one. */
  readonly attempts: number;
  /** How many times the store has told that the lock may be free. */
  readonly wakeups: number;
  /** For the backend to say when the lock ends that it found, in milliseconds from then. */
  freeInMs: number | undefined;
};

type WithAttempt = { readonly "syncguard.attempt"?: Attempt };

/** Not enumerable: other backends see `{ key, ttlMs, signal }`. */
export function attachAttempt(args: object, one: Attempt): void {
  Object.defineProperty(args, "syncguard.attempt", { value: one });
}

/**
 * The attempt of `lock()` that an acquisition belongs to, if any. The property has a string name and not a symbol, because
 * only for string names does V8 cache that most arguments lack it.
 */
export function attemptOf(args: object): Attempt | undefined {
  return (args as WithAttempt)["syncguard.attempt"];
}
