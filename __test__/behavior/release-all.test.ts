import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { lock, type LockError, type LockEvent, withTelemetry } from "syncguard";
import { lockError } from "../support/errors";
import { deferred } from "../support/fake-backend";
import { type Backend, newKey, onEveryStore, take } from "../support/suite";
import { until } from "../support/until";

const NOTHING = { released: 0, gone: 0, failed: [] };

onEveryStore("releaseAll", (connect) => {
  /** Backends that end with their test, and what another process sees of the locks. */
  const own = (): Backend => connect({});
  const isHeld = async (backend: Backend, key: string): Promise<boolean> =>
    await backend.isLocked({ key });

  test("frees every lock of the backend, however it was taken, and no other's", async () => {
    const [backend, other] = [own(), connect()];
    const keys = Array.from({ length: 6 }, newKey);
    const [plain, extending, waited, called, released, elsewhere] = keys as [
      ...[string, string, string, string, string, string],
    ];
    const first = await take(backend, plain, 60_000);
    await backend.acquire({ key: extending, ttlMs: 60_000, autoExtend: true });
    const third = await backend.lock(waited, { ttlMs: 60_000 });
    let lost: LockError | undefined;
    const [begun, all] = [deferred<null>(), deferred<null>()];
    const work = lock(
      backend,
      async ({ signal }) => {
        begun.resolve(null);
        await until(() => signal.aborted);
        lost = signal.reason as LockError;
        // It would release the lock when it ends.
        await all.promise;
      },
      { key: called, ttlMs: 60_000 },
    );
    // The store may show it to others before its answer has come here: then it would be refused.
    await begun.promise;
    await (await take(backend, released)).release();
    const kept = await take(other, elsewhere);

    expect(await backend.releaseAll()).toEqual({ released: 4, gone: 0, failed: [] });
    for (const key of [plain, extending, waited, called]) {
      expect(await isHeld(backend, key)).toBe(false);
    }
    all.resolve(null);
    // Whoever works under a lock is told, also if it asks only now.
    await work;
    expect(lost).toMatchObject({ code: "LockLost", context: { key: called } });
    expect(third.signal.aborted).toBe(true);
    expect(await first.release()).toEqual({ ok: false });
    expect(await backend.releaseAll()).toEqual(NOTHING);
    expect(await kept.release()).toEqual({ ok: true });
    await backend.close();
  });

  test("a lock that its holder releases when it hears of that counts as released", async () => {
    const backend = own();
    const options = { ttlMs: 60_000, autoExtend: true };
    const [first, second] = [
      await backend.lock(newKey(), options),
      await backend.lock([newKey(), newKey()], options),
    ];
    const results: Promise<unknown>[] = [];
    first.signal.addEventListener("abort", () => results.push(first.release()));
    const work = async (): Promise<void> => {
      try {
        await sleep(60_000, undefined, { signal: second.signal });
      } finally {
        await second.release();
      }
    };
    const worked = work().catch((error: unknown) => error);
    expect(await backend.releaseAll()).toEqual({ released: 2, gone: 0, failed: [] });
    await Promise.all(results);
    expect(await worked).toHaveProperty("name", "AbortError");
    await backend.close();
  });

  test("grants nothing any more: who waits is refused at once, and so is who comes later", async () => {
    const backend = own();
    const [key, free] = [newKey(), newKey()];
    await take(backend, key, 60_000);
    const patient = { acquisition: { timeoutMs: 60_000, retryDelayMs: 60_000 } };
    const waiters = [1, 2, 3].map(() => lockError(backend.lock(key, patient)));
    // Those that are on their way when it begins are given back, too.
    const late = Array.from({ length: 5 }, () =>
      lockError(backend.acquire({ key: newKey(), ttlMs: 60_000 })),
    );
    const { released, ...others } = await backend.releaseAll();
    expect(others).toEqual({ gone: 0, failed: [] });
    // The attempt of the first in line may be on its way, too, and find the lock free.
    expect([6, 7]).toContain(released);
    const refused = [
      ...(await Promise.all([...waiters, ...late])),
      await lockError(backend.acquire({ key: free, ttlMs: 60_000 })),
      await lockError(lock(backend, () => 1, { key: free })),
    ];
    for (const error of refused) {
      expect(error).toMatchObject({
        code: "Aborted",
        message: "the backend grants no more locks: releaseAll() was called",
      });
    }
    expect(await isHeld(backend, free)).toBe(false);
    await backend.close();
  });

  test("says what was gone already, and tells telemetry", async () => {
    const events: LockEvent[] = [];
    const inner = own();
    const backend = withTelemetry(inner, { onEvent: (event) => events.push(event) });
    const [key, other] = [newKey(), newKey()];
    await take(backend, key, 60_000);
    const gone = await take(backend, other, 60_000);
    await inner.forceRelease(other);
    const { signal } = gone;
    events.length = 0;
    expect(await backend.releaseAll({ timeoutMs: 30_000 })).toEqual({
      ...NOTHING,
      released: 1,
      gone: 1,
    });
    expect(signal.aborted).toBe(true);
    await until(() => events.length === 4);
    expect(events.map(({ type, result }) => `${type} ${result}`).sort()).toEqual([
      ...["lost fail", "lost fail", "release fail", "release ok"],
    ]);
    expect(events.every(({ heldMs, lost }) => heldMs !== undefined && lost === true)).toBe(true);
    await backend.close();
  });

  test("refuses wrong options, and goes on with the others", async () => {
    const backend = own();
    const key = newKey();
    await take(backend, key, 60_000);
    for (const timeoutMs of [0, -1, Number.NaN, "1" as never]) {
      expect(await lockError(backend.releaseAll({ timeoutMs }))).toMatchObject({
        code: "InvalidArgument",
        message: "timeoutMs must be a positive number",
      });
    }
    expect(await isHeld(backend, key)).toBe(true);
    // Both calls are one: two signals may come at once.
    const results = await Promise.all([backend.releaseAll(), backend.releaseAll()]);
    expect(results).toEqual(results.map(() => ({ released: 1, gone: 0, failed: [] })));
    await backend.close();
  });
});
