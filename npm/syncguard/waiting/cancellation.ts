/** Combines the two signals that can end the waiting for a lock. */

import { LockError } from "../native/errors.js";
import { onAbort } from "../native/signal.js";

/** The result of a race that a signal has won. */
export const CANCELLED: unique symbol = Symbol("cancelled");

/** Ends a wait as soon as a signal is aborted. Call `stop` when done. */
export interface Cancellation {
  /** Aborted with either signal. */
  readonly signal: AbortSignal;
  /** Whether a signal is aborted. */
  isAborted(): boolean;
  /** Throws if a signal is aborted. */
  check(): void;
  /** The error to throw after a cancellation. */
  error(): LockError;
  /** The promise, or `CANCELLED` if a signal comes first. */
  race<T>(promise: Promise<T>): Promise<T | typeof CANCELLED>;
  /** Removes the listeners from the signals. */
  stop(): void;
}

/** Listens to `config.signal` and `acquisition.signal`; `undefined` if neither is given. */
export function watchSignals(
  user: AbortSignal | undefined,
  acquisition: AbortSignal | undefined,
  key: string,
): Cancellation | undefined {
  const single = user ?? acquisition;
  if (single === undefined) return undefined;
  const sources = [user, acquisition].filter((signal) => signal !== undefined);
  // Ends the wait of `race`. Only one runs at a time.
  let wake: (() => void) | undefined;
  const both = user !== undefined && acquisition !== undefined && user !== acquisition;
  const joined = both ? new AbortController() : undefined;
  const stops = sources.map((source) =>
    onAbort(source, () => {
      joined?.abort(user?.aborted === true ? user.reason : acquisition?.reason);
      wake?.();
    }),
  );
  const signal = joined?.signal ?? single;

  const error = (): LockError =>
    user?.aborted === true
      ? new LockError("Aborted", "Operation cancelled by user signal", { key, cause: user.reason })
      : new LockError("Aborted", "Acquisition cancelled by acquisition signal", {
          key,
          cause: acquisition?.reason,
        });

  const isAborted = (): boolean => sources.some((source) => source.aborted);

  return {
    signal,
    error,
    isAborted,
    check: () => {
      if (isAborted()) throw error();
    },
    race: async (promise) => {
      const cancelled = new Promise<typeof CANCELLED>((resolve) => {
        wake = () => resolve(CANCELLED);
      });
      if (signal.aborted) return CANCELLED;
      return await Promise.race([promise, cancelled]);
    },
    stop: () => {
      wake = undefined;
      for (const stop of stops) stop();
    },
  };
}
