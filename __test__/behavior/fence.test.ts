import { expect, test } from "vitest";
import { hasFence } from "syncguard";
import { newKey, onEveryStore, take } from "../support/suite";

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
    expect(fences[0]).toBe("000000000000001");
    expect(fences).toEqual([...new Set(fences)].sort());
  });

  test("each key counts for itself", async () => {
    const backend = connect();
    expect((await take(backend, newKey())).fence).toBe("000000000000001");
    expect((await take(backend, newKey())).fence).toBe("000000000000001");
  });

  test("contention uses none up", async () => {
    const backend = connect();
    const key = newKey();
    const first = await take(backend, key);
    for (let attempt = 0; attempt < 5; attempt += 1) await backend.acquire({ key, ttlMs: 1_000 });
    await first.release();
    expect((await take(backend, key)).fence).toBe("000000000000002");
  });

  test("hasFence sees it", async () => {
    const backend = connect();
    const key = newKey();
    expect(hasFence(await backend.acquire({ key, ttlMs: 5_000 }))).toBe(true);
    expect(hasFence(await backend.acquire({ key, ttlMs: 5_000 }))).toBe(false);
  });
});
