import { beforeEach, expect, test } from "vitest";
import { lock } from "syncguard";
import { lockError } from "../support/errors";
import { type Backend, newKey, onEveryStore, take } from "../support/suite";

/** For tests that make many backends, one after the other: each logs in anew. */
const TIME = { timeout: 120_000 };

onEveryStore("close", (connect) => {
  /** A backend that nothing else uses. */
  const own = (): Backend => connect({});
  /** Sees what others hold, but for a store that only one can see: that is gone with it. */
  let observer: Backend;
  beforeEach(() => {
    observer = own();
    return () => observer.close();
  });
  const isHeld = async (key: string): Promise<boolean> => await observer.isLocked({ key });

  test("what was cancelled before is undone", TIME, async () => {
    let held = 0;
    for (let round = 0; round < 30; round += 1) {
      const backend = own();
      const key = newKey();
      const controller = new AbortController();
      const attempt = lockError(backend.acquire({ key, ttlMs: 60_000, signal: controller.signal }));
      controller.abort();
      await backend.close();
      expect((await attempt).code).toBe("Aborted");
      if (await isHeld(key)) held += 1;
    }
    expect(held).toBe(0);
  });

  test("what was cancelled at some moment before is undone", TIME, async () => {
    let held = 0;
    for (let round = 0; round < 30; round += 1) {
      const backend = own();
      await backend.isLocked({ key: newKey() });
      const keys = Array.from({ length: 10 }, newKey);
      const controllers = keys.map(() => new AbortController());
      // What its caller has got is the caller's to release.
      const got = new Set<string>();
      const attempts = keys.map(async (key, number) => {
        const signal = controllers[number]?.signal;
        if (number % 2 === 0) {
          const result = await backend.acquire({ key, ttlMs: 60_000, signal });
          if (result.ok) got.add(key);
        } else {
          const work = (): Promise<void> => {
            got.add(key);
            return new Promise(() => undefined);
          };
          await lock(backend, work, { key, ttlMs: 60_000, signal });
        }
      });
      void Promise.allSettled(attempts);
      // With the first answer, others are on their way.
      await backend.acquire({ key: newKey(), ttlMs: 60_000 });
      for (const controller of controllers) controller.abort();
      await backend.close();
      for (const key of keys) if (!got.has(key) && (await isHeld(key))) held += 1;
    }
    expect(held).toBe(0);
  });

  test("what was asked before is answered, and what is asked after is refused", async () => {
    const backend = own();
    const locks = await Promise.all(
      Array.from({ length: 100 }, async () => await take(backend, newKey())),
    );
    const releases = Promise.all(locks.map(({ release }) => release()));
    const closed = backend.close();
    const key = newKey();
    for (const late of [
      backend.acquire({ key, ttlMs: 5_000 }),
      backend.extend({ lockId: locks[0]!.lockId, ttlMs: 5_000 }),
      backend.isLocked({ key }),
      backend.lookup({ key }),
      backend.forceRelease(key),
    ]) {
      const error = await lockError(late);
      expect(error).toMatchObject({ code: "Aborted", message: "the backend is closed" });
    }
    expect(await releases).toEqual(locks.map(() => ({ ok: true })));
    await closed;
    const error = await lockError(backend.release({ lockId: locks[0]!.lockId }));
    expect(error).toMatchObject({ code: "Aborted", message: "the backend is closed" });
    expect(await isHeld(key)).toBe(false);
  });

  test("those who wait for a lock end at once, also those who only poll", async () => {
    const backend = own();
    const key = newKey();
    await take(backend, key);
    const pause = { retryDelayMs: 30_000, jitter: "none", timeoutMs: 60_000 } as const;
    const waiters = (["poll", "poll", "notify"] as const).map((wait) =>
      lockError(backend.lock(key, { acquisition: { ...pause, wait } })),
    );
    // They have asked, and wait for their next retry or for their turn.
    await backend.isLocked({ key });
    const start = performance.now();
    await backend.close();
    for (const error of await Promise.all(waiters)) {
      expect(error).toMatchObject({ code: "Aborted", message: "the backend is closed" });
      expect(error.context).toMatchObject({ key });
    }
    expect(performance.now() - start).toBeLessThan(10_000);
  });
});
