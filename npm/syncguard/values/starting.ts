/** Makes the checks with which every operation begins. */

import { checkAborted, readSignal } from "../native/signal.js";
import { invalid } from "../options/validation.js";

/** The signal of an operation that is about to start, if there is one. */
export function startingSignal(opts: {
  signal?: AbortSignal | undefined;
}): AbortSignal | undefined {
  const signal = readSignal(opts.signal);
  checkAborted(signal);
  return signal;
}

/** Checks that an operation was given an object of arguments. */
export function given<Options extends object>(opts: Options): Options {
  if (typeof opts !== "object" || opts === null) {
    throw invalid("the operation needs an options object");
  }
  return opts;
}
