import { expect, test } from "vitest";
import { lock } from "syncguard";
import { lockError } from "../support/errors";
import { newKey, onEveryStore, take } from "../support/suite";

onEveryStore("contention", (connect) => {
  test("a held lock is not given out", async () => {
    const backend = connect();
    const key = newKey();
    await take(backend, key);
    const second = await backend.acquire({ key, ttlMs: 5_000 });
    expect(second).toMatchObject({ ok: false, reason: "locked" });
  });

  test("one of many gets the lock", async () => {
    const key = newKey();
    const results = await Promise.all(
      Array.from({ length: 20 }, () => connect().acquire({ key, ttlMs: 5_000 })),
    );
    expect(results.filter((result) => result.ok)).toHaveLength(1);
  });

  test("work under one lock never overlaps", async () => {
    const key = newKey();
    let inside = 0;
    let most = 0;
    const work = async (): Promise<void> => {
      inside += 1;
      most = Math.max(most, inside);
      await new Promise(setImmediate);
      inside -= 1;
    };
    const acquisition = { maxRetries: Infinity, timeoutMs: 20_000, retryDelayMs: 2 } as const;
    await Promise.all(
      Array.from({ length: 10 }, () =>
        lock(connect(), work, { key, acquisition: { ...acquisition, backoff: "fixed" } }),
      ),
    );
    expect(most).toBe(1);
  });

  test("waiting ends with AcquisitionTimeout", async () => {
    const backend = connect();
    const key = newKey();
    await take(backend, key);
    const acquisition = { timeoutMs: 60, retryDelayMs: 5, maxRetries: Infinity };
    let ran = false;
    const error = await lockError(
      lock(
        backend,
        () => {
          ran = true;
        },
        { key, acquisition },
      ),
    );
    expect(error.code).toBe("AcquisitionTimeout");
    expect(error.message).toMatch(/^Timeout reached before next retry /);
    expect(error.context?.key).toBe(key);
    expect(ran).toBe(false);
    expect((await lockError(backend.lock(key, { acquisition }))).code).toBe("AcquisitionTimeout");
  });

  test("the lock goes to a waiter once it is free", async () => {
    const backend = connect();
    const key = newKey();
    const first = await take(backend, key);
    const waiting = backend.lock(key, { acquisition: { retryDelayMs: 5, timeoutMs: 10_000 } });
    await first.release();
    const second = await waiting;
    expect(second.fence > first.fence).toBe(true);
  });
});
