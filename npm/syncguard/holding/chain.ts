/** Knows under which locks the current chain of calls works, where functions that were given to `lock()` call `lock()` again. */

import { AsyncLocalStorage } from "node:async_hooks";
import type { CheckedClaim } from "../native/claims.js";
import { excludes } from "../values/claims.js";
import type { Lease } from "./lease.js";

/** A function that runs under a lock. */
type Link = {
  readonly origin: object;
  /** What the function has locked. */
  readonly claims: readonly CheckedClaim[];
  readonly outer: Link | undefined;
  readonly lease: Lease;
  /** Whether the function still runs. Calls that it has started may outlive it and the lock. */
  isRunning: boolean;
};

const chain = new AsyncLocalStorage<Link>();
/** How many functions run under a lock. */
let running = 0;
/** Of what developers have been told. */
const warned = new Set<Outer>();

/** How a lock is held around the call that waits for it. */
export type Outer = "exclusive" | "shared";

/**
 * Runs the function that was given to `lock()`.
 *
 * @param origin - stands for the backend and its wrappers
 */
export async function runInside<T>(
  origin: object,
  claims: readonly CheckedClaim[],
  lease: Lease,
  work: () => Promise<T> | T,
): Promise<T> {
  const link: Link = { origin, claims, lease, isRunning: true, outer: chain.getStore() };
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

/** How the caller itself holds a lock that excludes one of these, so that it would wait in vain. `undefined` if it does not. */
export function heldAround(origin: object, wanted: readonly CheckedClaim[]): Outer | undefined {
  if (running === 0) return undefined;
  for (let link = chain.getStore(); link !== undefined; link = link.outer) {
    if (!link.isRunning || link.origin !== origin || link.lease.isLost()) continue;
    const held = link.claims.find((claim) => wanted.some((other) => excludes(claim, other)));
    if (held !== undefined) return held.kind === "shared" ? "shared" : "exclusive";
  }
  return undefined;
}

/** What the error says of a wait that was in vain for that reason. */
export const INSIDE: Record<Outer, string> = {
  exclusive:
    ": a lock() around this very call, or the term of a lead(), which cannot end before it: work under that lock",
  shared:
    ": a lock() around this very call, which shares the key and cannot end before it: release that, and read again under the exclusive lock",
};

const WARNINGS: Record<Outer, string> = {
  exclusive:
    "[SyncGuard] A lock() or lead() waits inside another lock() that holds the same lock: it cannot get it before its time is over. " +
    "Work under the outer lock, or use another key.",
  shared:
    "[SyncGuard] A lock() or lead() waits inside another lock() that shares its key: a shared lock does not become an exclusive one, " +
    "so it cannot get that before its time is over. Release the shared lock, take the exclusive one, and read again.",
};

/** Tells the developer, once of each. */
export function warnOfInside(outer: Outer): void {
  if (warned.has(outer) || process.env.NODE_ENV === "production") return;
  warned.add(outer);
  console.warn(WARNINGS[outer]);
}
