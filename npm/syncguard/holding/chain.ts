/** Knows under which locks the current chain of calls works, where functions that were given to `lock()` call `lock()` again. */

import { AsyncLocalStorage } from "node:async_hooks";
import type { Lease } from "./lease.js";

/** A function that runs under a lock. */
type Link = {
  readonly origin: object;
  /** The keys that nobody else can have meanwhile. */
  readonly keys: readonly string[];
  readonly outer: Link | undefined;
  readonly lease: Lease;
  /** Whether the function still runs. Calls that it has started may outlive it and the lock. */
  isRunning: boolean;
};

const chain = new AsyncLocalStorage<Link>();
/** How many functions run under a lock. */
let running = 0;
let warned = false;

/**
 * Runs the function that was given to `lock()`.
 *
 * @param origin - stands for the backend and its wrappers
 */
export async function runInside<T>(
  origin: object,
  keys: readonly string[],
  lease: Lease,
  work: () => Promise<T> | T,
): Promise<T> {
  const link: Link = { origin, keys, lease, isRunning: true, outer: chain.getStore() };
  running += 1;
  try {
    return await chain.run(link, work);
  } finally {
    link.isRunning = false;
    running -= 1;
    // Before Node.js 24, every promise of the process costs more while an AsyncLocalStorage is in use.
    if (running === 0) chain.disable();
  }
}

/** Whether the caller works under one of these locks itself, so that it would wait for it in vain. */
export function isInside(origin: object, keys: readonly string[]): boolean {
  if (running === 0) return false;
  for (let link = chain.getStore(); link !== undefined; link = link.outer) {
    const isOne = (key: string): boolean => keys.includes(key);
    if (link.isRunning && link.origin === origin && link.keys.some(isOne)) {
      if (!link.lease.isLost()) return true;
    }
  }
  return false;
}

/** What the error says of a wait that was in vain for that reason. */
export const INSIDE =
  ": a lock() around this very call, or the term of a lead(), which cannot end before it";

/** Tells the developer, once. */
export function warnOfInside(): void {
  if (warned || process.env.NODE_ENV === "production") return;
  warned = true;
  console.warn(
    "[SyncGuard] A lock() or lead() waits inside another lock() that holds the same lock: it cannot get it before its time is over. " +
      "Work under the outer lock, or use another key.",
  );
}
