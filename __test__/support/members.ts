/** Processes that lead one after another, in the tests of `lead()`. */

import { expect } from "vitest";
import type { Leadership, LockError } from "syncguard";
import { createTestBackend, type TestBackend, TestClock } from "syncguard/testing";
import { deferred } from "./fake-backend";

export const KEY = "scheduler";
export const TTL_MS = 6_000;
/** The longest pause after a failure, and between two questions of a follower. */
export const LONGEST_PAUSE_MS = 5_000;

/** A term that is under way. */
export type Term = Leadership & { end: (error?: unknown) => void };

/** A process that leads until it is told to end its term. */
export function member(backend: TestBackend, options: Parameters<TestBackend["lead"]>[2] = {}) {
  const terms: Term[] = [];
  const errors: unknown[] = [];
  const losses: LockError[] = [];
  let running = 0;
  const over = backend.lead(
    KEY,
    async (leadership) => {
      const { promise, resolve, reject } = deferred<null>();
      const end: Term["end"] = (error) => (error === undefined ? resolve(null) : reject(error));
      running += 1;
      terms.push({ ...leadership, end });
      try {
        await promise;
      } finally {
        running -= 1;
      }
    },
    {
      ttlMs: TTL_MS,
      onError: (error, context) => errors.push([(error as Error).message, context]),
      onLost: (error) => losses.push(error),
      ...options,
    },
  );
  return {
    ...{ over, errors, losses, terms },
    running: () => running,
    /** The term under way. */
    term: (): Term => {
      const last = terms.at(-1);
      if (last === undefined || running === 0) throw new Error("expected it to lead");
      return last;
    },
  };
}

/** Two processes on one store and one clock, of which the first leads. */
export async function twoMembers(options: Parameters<TestBackend["lead"]>[2] = {}) {
  const clock = new TestClock();
  const backend = createTestBackend({ clock });
  const other = createTestBackend({ sharing: backend });
  const first = member(backend, options);
  await clock.advance(0);
  const second = member(other);
  await clock.advance(0);
  expect([first.running(), second.running()]).toEqual([1, 0]);
  return { clock, backend, other, first, second };
}
