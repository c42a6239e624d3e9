/** Signals: what is taken for one, and how to hear of its abort. */

import { LockError } from "./errors.js";

/**
 * The signal that was given, if any; `null` counts as none.
 *
 * Whatever has the members that are used will do. They are checked here, before anything is started: a listener that
 * cannot be taken off again must not surprise an operation that holds a lock by then.
 *
 * @throws LockError `InvalidArgument` that calls the signal by `name`
 */
export function readSignal(
  signal: AbortSignal | null | undefined,
  name = "signal",
): AbortSignal | undefined {
  if (signal === undefined || signal === null) return undefined;
  const given = signal as Partial<AbortSignal>;
  if (
    typeof given.aborted !== "boolean" ||
    typeof given.addEventListener !== "function" ||
    typeof given.removeEventListener !== "function"
  ) {
    throw new LockError("InvalidArgument", `${name} must be an AbortSignal`);
  }
  return signal;
}

/** Who waits for the abort of a signal, and the one listener on it that tells them. */
type Audience = { readonly callbacks: Set<() => void>; readonly listener: () => void };

const audiences = new WeakMap<AbortSignal, Audience>();

/**
 * Calls `callback` once the signal is aborted, unless the returned function is called before.
 *
 * However many wait, each signal gets one listener: a signal for the whole process, such as one for its shutdown, may
 * have any number of operations, and Node.js takes more than ten listeners for a leak.
 *
 * @param callback - a function of its own for each call; it must not throw
 * @throws LockError `InvalidArgument` if the signal refuses the listener
 */
export function onAbort(signal: AbortSignal, callback: () => void): () => void {
  const audience = audiences.get(signal) ?? createAudience(signal);
  audience.callbacks.add(callback);
  return () => {
    audience.callbacks.delete(callback);
    if (audience.callbacks.size > 0 || audiences.get(signal) !== audience) return;
    try {
      signal.removeEventListener("abort", audience.listener);
      audiences.delete(signal);
    } catch {
      // A signal-like object that keeps its listener: the next who waits uses it again.
    }
  };
}

function createAudience(signal: AbortSignal): Audience {
  const callbacks: Audience["callbacks"] = new Set();
  const listener = (): void => {
    for (const callback of [...callbacks]) callback();
  };
  try {
    signal.addEventListener("abort", listener);
  } catch (cause) {
    throw new LockError("InvalidArgument", "the signal refused a listener", { cause });
  }
  const audience = { callbacks, listener };
  audiences.set(signal, audience);
  return audience;
}

/**
 * Throws if the signal is aborted. For backends whose driver knows no signals.
 *
 * @throws LockError `Aborted`
 */
export function checkAborted(signal?: AbortSignal): void {
  if (signal?.aborted === true) {
    throw new LockError("Aborted", "Operation aborted by signal", { cause: signal.reason });
  }
}

/**
 * Resolves after `ms` milliseconds, or rejects as soon as the signal is aborted.
 *
 * @throws LockError `Aborted`
 */
export async function delay(ms: number, signal?: AbortSignal): Promise<void> {
  const given = readSignal(signal);
  checkAborted(given);
  await new Promise<void>((resolve) => {
    const stop = given === undefined ? undefined : onAbort(given, end);
    const timer = setTimeout(end, ms);
    function end(): void {
      clearTimeout(timer);
      stop?.();
      resolve();
    }
  });
  checkAborted(given);
}
