import { expect, test } from "vitest";
import { type AcquisitionOptions, lock } from "syncguard";
import { lockError } from "../support/errors";
import { type Backend, newKey, onEveryStore, take } from "../support/suite";
import { until } from "../support/until";

/** The stores that cannot tell of a release, so that waiters poll. */
const SILENT = / through | behind PgBouncer/;
/** Whoever is told has the lock sooner, and whoever is not polls later. */
const TOLD_MS = 20_000;

onEveryStore("waiting", (connect, name) => {
  const tells = !SILENT.test(name);
  /** Where the store tells, so slow a poll that only its message explains why somebody gets the lock. */
  const patient: AcquisitionOptions = {
    maxRetries: Infinity,
    retryDelayMs: tells ? 25_000 : 10,
    backoff: "fixed",
    jitter: "none",
    timeoutMs: 60_000,
  };

  /** Ten that want the lock, on three backends. */
  async function handOver(free: (backend: Backend, key: string, lockId: string) => Promise<void>) {
    const backends = [connect(), connect(), connect()];
    const key = newKey();
    const start = performance.now();
    let inside = 0;
    const fences: string[] = [];
    await Promise.all(
      Array.from({ length: 10 }, async (_, number) => {
        const backend = backends[number % 3] as Backend;
        const held = await backend.lock(key, { acquisition: patient });
        inside += 1;
        expect(inside).toBe(1);
        fences.push(held.fence);
        await new Promise(setImmediate);
        inside -= 1;
        await free(backend, key, held.lockId);
      }),
    );
    expect(performance.now() - start).toBeLessThan(TOLD_MS);
    expect(fences).toEqual([...fences].sort());
  }

  test("a released lock goes to whoever waits, on whichever connection", async () => {
    await handOver(async (backend, _, lockId) => {
      await backend.release({ lockId });
    });
  });

  test("so does one that was released by force", async () => {
    await handOver(async (backend, key) => {
      await backend.forceRelease(key);
    });
  });

  test("who ends first knows when a lock ends by itself", async () => {
    const backend = connect();
    const key = newKey();
    await take(backend, key, 200);
    const start = performance.now();
    const held = await backend.lock(key, { acquisition: patient });
    const tookMs = performance.now() - start;
    expect(tookMs).toBeGreaterThan(1_000);
    expect(tookMs).toBeLessThan(15_000);
    await held.release();
  });

  test("those of one process are served as they came", async () => {
    const backend = connect();
    const key = newKey();
    const first = await take(backend, key);
    const served: number[] = [];
    const waiters = Array.from({ length: 8 }, (_, number) =>
      lock(backend, () => served.push(number), { key, acquisition: patient }),
    );
    const start = performance.now();
    await first.release();
    await Promise.all(waiters);
    expect(performance.now() - start).toBeLessThan(TOLD_MS);
    expect(served).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
  });

  test("polling is enough", async () => {
    const backend = connect();
    const key = newKey();
    const first = await take(backend, key);
    const waiter = backend.lock(key, {
      acquisition: { ...patient, retryDelayMs: 10, wait: "poll" },
    });
    await first.release();
    await (await waiter).release();
  });

  test("who is cancelled makes way", async () => {
    const backend = connect();
    const key = newKey();
    const first = await take(backend, key);
    const controllers = Array.from({ length: 3 }, () => new AbortController());
    const cancelled = controllers.map(({ signal }) =>
      lockError(backend.lock(key, { acquisition: patient, signal })),
    );
    const last = backend.lock(key, { acquisition: patient });
    // The first of them has asked, and waits.
    await until(async () => backend.isLocked({ key }));
    const start = performance.now();
    for (const controller of controllers) controller.abort();
    for (const error of await Promise.all(cancelled)) expect(error.code).toBe("Aborted");
    expect(performance.now() - start).toBeLessThan(TOLD_MS);
    await first.release();
    await (await last).release();
    expect(performance.now() - start).toBeLessThan(TOLD_MS);
  });
});
