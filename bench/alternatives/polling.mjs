// What a library without waiting needs around it.

import { setTimeout as sleep } from "node:timers/promises";
import { pairOf } from "../lib/pair.mjs";

/** Waits by asking again and again. `library` has `acquire({ key, ttlMs })` and `release({ lockId })`. */
export function polling(library, { retryMs, ttlMs = 30_000 }) {
  const free = async ({ lockId }) => {
    if (!(await library.release({ lockId })).ok) throw new Error("the lock was not released");
  };
  return {
    pair: pairOf(library),
    attempt: async (key) => (await library.acquire({ key, ttlMs })).ok,
    async take(key) {
      const held = await library.acquire({ key, ttlMs: 600_000 });
      if (!held.ok) throw new Error("nobody else can hold this lock");
      return () => free(held);
    },
    async within(key, work) {
      for (;;) {
        const held = await library.acquire({ key, ttlMs });
        if (held.ok) return await under(() => free(held), work);
        await sleep(retryMs);
      }
    },
  };
}

/** Does the work under a lock that is held, then frees it. */
export async function under(free, work) {
  try {
    return await work();
  } finally {
    await free();
  }
}

/** What a `using()` that extends its lock holds, until the function that this resolves to is called. */
export function keptBy(using, onLost) {
  return new Promise((started, failed) => {
    let end;
    const ended = new Promise((resolve) => (end = resolve));
    const used = using(async (signal) => {
      signal.addEventListener("abort", onLost);
      started(async () => {
        end();
        // A lock that was lost cannot be released.
        await used.catch(() => undefined);
      });
      await ended;
    });
    used.catch(failed);
  });
}
