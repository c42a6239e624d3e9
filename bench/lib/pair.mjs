// Acquire and release.

import { load } from "./load.mjs";

/** Takes and releases a lock of `library` under a key of its own for each index. */
export function pairOf(library) {
  return async (index) => {
    const result = await library.acquire({ key: `key:${index}`, ttlMs: 30_000 });
    if (!result.ok) throw new Error("nobody else can hold this lock");
    const { ok } = await library.release({ lockId: result.lockId });
    if (!ok) throw new Error("the lock was not released");
  };
}

/** One sample of a contender's pairs, after a warm-up. */
export async function samplePairs({ pair }, { inFlight, ms, warmMs }) {
  // Where a pair takes long, a warm-up with all of them would take as long as the sample.
  await load(pair, Math.min(inFlight, 16), warmMs);
  return await load(pair, inFlight, ms);
}
