/** Checks which objects are accepted as signals, and listens for aborts. */

import { getEventListeners } from "node:events";
import { LockError } from "./errors.js";

/**
 * The signal that was given, if any; `null` counts as none.
 *
 * Accepts any object that has the members used here. They are checked before anything starts: otherwise a missing
 * `removeEventListener`, for example, would be found only when an operation already holds a lock.
 *
 * @throws LockError `InvalidArgument` that calls the signal by `name`
 */
export function readSignal(
  signal: AbortSignal | null | undefined,
  name = "signal",
): AbortSignal | undefined {
  if (signal === undefined || signal === null) return undefined;
  const candidate = signal as Partial<AbortSignal>;
  if (
    typeof candidate.aborted !== "boolean" ||
    typeof candidate.addEventListener !== "function" ||
    typeof candidate.removeEventListener !== "function"
  ) {
    throw new LockError("InvalidArgument", `${name} must be an AbortSignal`);
  }
  return signal;
}

/**
 * Makes the signal tell the truth whenever it is asked, because `look` may abort it then. Without that, the signal would tell what was
 * known at the last turn of the event loop.
 */
export function lookFirst(signal: AbortSignal, look: () => void): AbortSignal {
  const prototype = Object.getPrototypeOf(signal) as AbortSignal;
  const shown = (name: "aborted" | "reason"): PropertyDescriptor => ({
    get: () => {
      look();
      return Reflect.get(prototype, name, signal) as unknown;
    },
    configurable: true,
  });
  return Object.defineProperties(signal, {
    aborted: shown("aborted"),
    reason: shown("reason"),
    throwIfAborted: {
      value: () => {
        look();
        prototype.throwIfAborted.call(signal);
      },
      configurable: true,
      writable: true,
    },
  });
}

/**
 * Makes a signal that is aborted with the first of two, for the reason of that one. When it is asked, it asks both, each of which may
 * {@link lookFirst}. `stop` removes the listener from `first`, which may live much longer.
 */
export function either(
  first: AbortSignal,
  second: AbortSignal,
): { signal: AbortSignal; stop: (() => void) | undefined } {
  const controller = new AbortController();
  const join = (source: AbortSignal): (() => void) | undefined => {
    const abort = (): void => controller.abort(source.reason);
    if (!source.aborted) return onAbort(source, abort);
    abort();
    return undefined;
  };
  const stop = join(first);
  join(second);
  const look = (): boolean => second.aborted || first.aborted;
  return { signal: lookFirst(controller.signal, look), stop };
}

/** Whether somebody waits for its abort. */
export function isListenedTo(signal: AbortSignal): boolean {
  try {
    return signal.onabort !== null || getEventListeners(signal, "abort").length > 0;
  } catch {
    // This runtime cannot tell.
    return true;
  }
}

/** The callbacks that wait for the abort of a signal, and the one listener that calls them. */
type AbortListeners = { readonly callbacks: Set<() => void>; readonly listener: () => void };

const listenersOf = new WeakMap<AbortSignal, AbortListeners>();

/**
 * Calls `callback` when the signal is aborted, unless the returned function is called before.
 *
 * Each signal gets only one listener, however many callbacks wait: a signal for the whole process, such as one for its
 * shutdown, may be passed to any number of operations, and Node.js reports more than ten listeners as a leak.
 *
 * @param callback - a function of its own for each call; it must not throw
 * @throws LockError `InvalidArgument` if the signal refuses the listener
 */
export function onAbort(signal: AbortSignal, callback: () => void): () => void {
  const listeners = listenersOf.get(signal) ?? createListeners(signal);
  listeners.callbacks.add(callback);
  return () => {
    listeners.callbacks.delete(callback);
    if (listeners.callbacks.size > 0 || listenersOf.get(signal) !== listeners) return;
    try {
      signal.removeEventListener("abort", listeners.listener);
      listenersOf.delete(signal);
    } catch {
      // This object has not removed its listener. The next callback uses that again.
    }
  };
}

function createListeners(signal: AbortSignal): AbortListeners {
  const callbacks: AbortListeners["callbacks"] = new Set();
  const listener = (): void => {
    for (const callback of [...callbacks]) callback();
  };
  try {
    signal.addEventListener("abort", listener);
  } catch (cause) {
    throw new LockError("InvalidArgument", "the signal refused a listener", { cause });
  }
  const listeners = { callbacks, listener };
  listenersOf.set(signal, listeners);
  return listeners;
}

/**
 * Throws if the signal is aborted. For backends whose driver does not support signals.
 *
 * @throws LockError `Aborted`
 * @example
 * ```ts
 * import { checkAborted } from "syncguard/common";
 *
 * function query(text: string, signal?: AbortSignal): void {
 *   checkAborted(signal);
 *   console.log("sent", text);
 * }
 * ```
 */
export function checkAborted(signal?: AbortSignal): void {
  if (signal?.aborted === true) {
    throw new LockError("Aborted", "Operation aborted by signal", { cause: signal.reason });
  }
}

/**
 * Resolves after `ms` milliseconds, or rejects as soon as the signal is aborted.
 *
 * @throws LockError `Aborted`; `InvalidArgument` for what is no signal
 * @example
 * ```ts
 * import { delay } from "syncguard/common";
 *
 * await delay(100, AbortSignal.timeout(1_000));
 * ```
 */
export async function delay(ms: number, signal?: AbortSignal): Promise<void> {
  const checkedSignal = readSignal(signal);
  checkAborted(checkedSignal);
  await new Promise<void>((resolve) => {
    const stop = checkedSignal === undefined ? undefined : onAbort(checkedSignal, end);
    const timer = setTimeout(end, ms);
    function end(): void {
      clearTimeout(timer);
      stop?.();
      resolve();
    }
  });
  checkAborted(checkedSignal);
}
