import { expect, test } from "vitest";
import { hasFence } from "syncguard";
import { isFromTheClock } from "../support/fences";
import { newKey, onEveryStore, take } from "../support/suite";
import { until } from "../support/until";

onEveryStore("fences", (connect) => {
  test("each acquisition of a key has a larger one", async () => {
    const key = newKey();
    const fences: string[] = [];
    for (let round = 0; round < 10; round += 1) {
      const backend = connect();
      const held = await take(backend, key);
      fences.push(held.fence);
      // However the lock ends.
      if (round % 2 === 0) await held.release();
      else await backend.forceRelease(key);
    }
    expect(fences[0]).toSatisfy(isFromTheClock);
    expect(fences).toEqual([...new Set(fences)].sort());
  });

  test("each is the time at which it was given, unless the counter is ahead of it", async () => {
    const backend = connect();
    const first = await take(backend, newKey());
    await until(() => Date.now() > Number(first.fence));
    const second = await take(backend, newKey());
    expect(second.fence).toSatisfy(isFromTheClock);
    expect(second.fence > first.fence).toBe(true);
  });

  test("hasFence sees it", async () => {
    const backend = connect();
    const key = newKey();
    expect(hasFence(await backend.acquire({ key, ttlMs: 5_000 }))).toBe(true);
    expect(hasFence(await backend.acquire({ key, ttlMs: 5_000 }))).toBe(false);
  });
});
