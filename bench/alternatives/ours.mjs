// This package, on any store.

import { pairOf } from "../lib/pair.mjs";
import { under } from "./polling.mjs";

// Until the lock is there: what is measured is how long that takes.
const acquisition = { timeoutMs: 60_000, maxRetries: Infinity };

/** A backend of this package as a contender. */
export function ours(backend) {
  return {
    pair: pairOf(backend),
    async pairOfSet(claims) {
      const held = await backend.acquire({ claims, ttlMs: 30_000 });
      if (!held.ok) throw new Error("nobody else can hold these locks");
      if (!(await held.release()).ok) throw new Error("the locks were not released");
    },
    async withinSlot(key, slots, work) {
      const held = await backend.lock({ key, slots }, { ttlMs: 30_000, acquisition });
      return await under(() => held.release(), work);
    },
    attempt: async (key) => (await backend.acquire({ key, ttlMs: 30_000 })).ok,
    async take(key) {
      const held = await backend.acquire({ key, ttlMs: 600_000 });
      if (!held.ok) throw new Error("nobody else can hold this lock");
      return () => held.release();
    },
    async within(key, work) {
      const held = await backend.lock(key, { ttlMs: 30_000, acquisition });
      return await under(() => held.release(), work);
    },
    async hold(key, ttlMs, onLost) {
      const held = await backend.lock(key, { ttlMs, autoExtend: true });
      held.signal.addEventListener("abort", onLost);
      return () => held.release();
    },
    close: () => backend.close(),
  };
}
