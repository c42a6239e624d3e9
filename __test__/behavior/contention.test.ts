import { expect, test } from "vitest";
import { type AcquisitionOptions, lock } from "syncguard";
import { lockError } from "../support/errors";
import { inTime } from "../support/in-time";
import { newKey, onEveryStore, take } from "../support/suite";

onEveryStore("contention", (connect) => {
  test("a held lock is not given out", async () => {
    const backend = connect();
    const key = newKey();
    await take(backend, key);
    const second = await backend.acquire({ key, ttlMs: 5_000 });
    expect(second).toMatchObject({ ok: false, reason: "locked" });
  });

  test("a busy answer says who and how long, and shows no lock id", async () => {
    const backend = connect();
    const [key, other] = [newKey(), newKey()];
    const held = await backend.lock(key, { ttlMs: 30_000, owner: "worker-7" });
    const busy = {
      retryAfterMs: expect.toSatisfy((ms: number) => ms > 15_000 && ms <= 31_000) as number,
      owner: "worker-7",
    };
    const refused = await connect().acquire({ key, ttlMs: 5_000 });
    expect(refused).toMatchObject({ ok: false, reason: "locked", ...busy });
    expect(JSON.stringify(refused)).not.toContain(held.lockId);
    const claims = [key, other];
    expect(await backend.acquire({ claims, ttlMs: 5_000 })).toMatchObject({ ...busy, key });

    for (const wait of [
      (acquisition: AcquisitionOptions) => lock(connect(), () => undefined, { key, acquisition }),
      (acquisition: AcquisitionOptions) => connect().lock(key, { acquisition }),
      (acquisition: AcquisitionOptions) => backend.lock([other, key], { acquisition }),
    ]) {
      const error = await lockError(
        inTime<unknown>(300, (timeoutMs) => wait({ timeoutMs, retryDelayMs: 100 })),
      );
      // Of two keys, the error names the one that is held.
      expect(error).toMatchObject({ code: "AcquisitionTimeout", context: { ...busy, key } });
      expect(JSON.stringify(error.context)).not.toContain(held.lockId);
    }
    await held.release();
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
    const acquisition = { retryDelayMs: 5, maxRetries: Infinity };
    let ran = false;
    const work = (): void => {
      ran = true;
    };
    const error = await lockError(
      inTime(60, (timeoutMs) =>
        lock(backend, work, { key, acquisition: { ...acquisition, timeoutMs } }),
      ),
    );
    expect(error.code).toBe("AcquisitionTimeout");
    expect(error.message).toMatch(/^Timeout reached before next retry /);
    expect(error.context?.key).toBe(key);
    expect(ran).toBe(false);
    const waiting = inTime(60, (timeoutMs) =>
      backend.lock(key, { acquisition: { ...acquisition, timeoutMs } }),
    );
    expect((await lockError(waiting)).code).toBe("AcquisitionTimeout");
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
