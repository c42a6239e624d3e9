import { AsyncLocalStorage } from "node:async_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { type AutoExtend, lock, LockError, type LockEvent, withTelemetry } from "syncguard";
import { lockError } from "../support/errors";
import { type Backend, newKey, onEveryStore } from "../support/suite";
import { until } from "../support/until";

/** Long enough for a machine with much else to do. */
const TTL_MS = 1_500;
const EXTENDING = { ttlMs: TTL_MS, autoExtend: true } as const;

/** The reason for which a signal is aborted, once it is. */
async function lossOf({ signal }: { readonly signal: AbortSignal }): Promise<LockError> {
  await until(() => signal.aborted);
  return signal.reason as LockError;
}

async function acquire(backend: Backend, key: string, autoExtend?: AutoExtend, ttlMs = TTL_MS) {
  const held = await backend.acquire({ key, ttlMs, autoExtend });
  if (!held.ok) throw new Error("expected the lock to be free");
  return held;
}

onEveryStore("holding", (connect) => {
  test.concurrent.each(["acquire", "backend.lock", "lock"])(
    "%s with autoExtend holds the lock past its TTL, and frees it",
    async (way) => {
      const [backend, key] = [connect(), newKey()];
      const work = async (held: { signal: AbortSignal; expiresAtMs: number }): Promise<void> => {
        const firstMs = held.expiresAtMs;
        // The tolerance of a second has passed, too.
        await sleep(TTL_MS + 1_500);
        expect(held.signal.aborted).toBe(false);
        expect(held.expiresAtMs).toBeGreaterThan(firstMs + 1_000);
        expect(await backend.isLocked({ key })).toBe(true);
      };
      if (way === "lock") {
        await lock(backend, work, { key, ...EXTENDING });
      } else {
        const held =
          way === "acquire"
            ? await acquire(backend, key, true)
            : await backend.lock(key, EXTENDING);
        await work(held);
        expect(await held.release()).toEqual({ ok: true });
        expect(held.signal.aborted).toBe(false);
      }
      expect(await backend.isLocked({ key })).toBe(false);
    },
  );

  test.concurrent(
    "of a loss one hears in the context in which the lock was asked for",
    async () => {
      const context = new AsyncLocalStorage<string>();
      const seen: string[] = [];
      const note = (who: string) => (): void => void seen.push(`${who}: ${context.getStore()}`);
      const [backend, key] = [connect(), newKey()];
      const onLost = note("onLost");
      const held = await context.run("asked", () => backend.lock(key, { ...EXTENDING, onLost }));
      held.signal.addEventListener("abort", note("listener"));
      await backend.forceRelease(key);
      await lossOf(held);
      await until(() => seen.length === 2);
      expect(seen.sort()).toEqual(["listener: asked", "onLost: asked"]);
    },
  );

  test.concurrent("a lock that is put out is lost", async () => {
    const [backend, key] = [connect(), newKey()];
    const held = await backend.lock(key, EXTENDING);
    await backend.forceRelease(key);
    const error = await lossOf(held);
    expect(error).toBeInstanceOf(LockError);
    expect(error).toMatchObject({ code: "LockLost", context: { key, lockId: held.lockId } });
    expect(await held.release()).toEqual({ ok: false });
  });

  test.concurrent("without autoExtend a lock is lost with its TTL", async () => {
    const backend = connect();
    const startedMs = performance.now();
    const held = await acquire(backend, newKey(), undefined, 100);
    expect(await lossOf(held)).toMatchObject({ code: "LockLost" });
    // Timers may be a little early.
    expect(performance.now() - startedMs).toBeGreaterThanOrEqual(95);
    const key = newKey();
    const reason = await lock(backend, lossOf, { key, ttlMs: 100 });
    expect(reason).toMatchObject({ code: "LockLost", context: { key } });
  });

  test.concurrent("a lost lock is neither extended nor released, and its key is free", async () => {
    const [backend, key] = [connect(), newKey()];
    const held = await acquire(backend, key, undefined, 100);
    await lossOf(held);
    // The store would do both within the tolerance of a second.
    expect(await held.extend(5_000)).toEqual({ ok: false });
    expect(await held.release()).toEqual({ ok: false });
    expect(await backend.isLocked({ key })).toBe(false);
  });

  test.concurrent("a lock that was held for as long as it may is not released", async () => {
    const [backend, key] = [connect(), newKey()];
    const held = await acquire(backend, key, { maxMs: 300 });
    await lossOf(held);
    expect(await held.release()).toEqual({ ok: false });
    expect(await backend.isLocked({ key })).toBe(false);
  });

  test.concurrent.each([undefined, true])(
    "a release that finds its lock gone is a loss: autoExtend %s",
    async (autoExtend) => {
      const events: LockEvent[] = [];
      const backend = withTelemetry(connect(), { onEvent: (event) => events.push(event) });
      const key = newKey();
      const held = await backend.acquire({ key, ttlMs: 60_000, autoExtend });
      if (!held.ok) throw new Error("expected the lock to be free");
      const { signal } = held;
      await backend.forceRelease(key);
      expect(await held.release()).toEqual({ ok: false });
      expect(signal.reason).toMatchObject({ code: "LockLost", context: { key } });
      const ended = () => events.filter(({ type }) => type === "lost" || type === "release");
      await until(() => ended().length === 2);
      expect(ended()).toMatchObject([
        { type: "lost", result: "fail", lost: true },
        { type: "release", result: "fail", reason: "not-found", lost: true },
      ]);
    },
  );

  test.concurrent("a lock that its own process has released by its id is not lost", async () => {
    const backend = connect();
    const held = await acquire(backend, newKey(), undefined, 60_000);
    const { signal } = held;
    await backend.release({ lockId: held.lockId });
    expect(await held.extend(60_000)).toEqual({ ok: false });
    expect(await held.release()).toEqual({ ok: false });
    expect(signal.aborted).toBe(false);
  });

  test.concurrent("an extension puts the loss off, and one that fails brings it", async () => {
    const backend = connect();
    const gone = await acquire(backend, newKey(), undefined, 60_000);
    let [held, ttlMs] = [await acquire(backend, newKey(), undefined, 1_000), 1_000];
    // On a busy machine the lock may have ended before.
    while (!(await held.extend(60_000)).ok) {
      ttlMs *= 2;
      held = await acquire(backend, newKey(), undefined, ttlMs);
    }
    const { signal } = held;
    await backend.extend({ lockId: held.lockId, ttlMs: 60_000 });
    await backend.forceRelease(gone.key);
    expect(await gone.extend(60_000)).toEqual({ ok: false });
    expect(await lossOf(gone)).toMatchObject({ code: "LockLost" });
    await sleep(1.1 * ttlMs);
    expect(signal.aborted).toBe(false);
    await held.release();
  });

  test.concurrent("a lock that was released is not lost", async () => {
    const backend = connect();
    const ways: ((held: Awaited<ReturnType<typeof acquire>>) => Promise<unknown>)[] = [
      (held) => held.release(),
      (held) => held[Symbol.asyncDispose](),
      (held) => backend.release({ lockId: held.lockId }),
    ];
    const signals = await Promise.all(
      ways.flatMap((way) =>
        [undefined, true as const].map(async (autoExtend) => {
          const held = await acquire(backend, newKey(), autoExtend, 1_000);
          const { signal } = held;
          await way(held);
          return signal;
        }),
      ),
    );
    await sleep(1_100);
    expect(signals.map(({ aborted }) => aborted)).toEqual(signals.map(() => false));
  });

  test.concurrent("telemetry tells for how long a lock was held, and of its loss", async () => {
    const events: LockEvent[] = [];
    const backend = withTelemetry(connect(), { onEvent: (event) => events.push(event) });
    const key = newKey();
    await lock(backend, () => sleep(TTL_MS), { key, ...EXTENDING });
    await until(() => events.length === 2);
    expect(events[1]).toMatchObject({ type: "release", result: "ok" });
    expect(events[1]?.heldMs).toBeGreaterThanOrEqual(TTL_MS - 1);
    expect(events[1]?.extensions).toBeGreaterThanOrEqual(1);
    expect(events[1]).not.toHaveProperty("lost");
    events.length = 0;
    const held = await backend.lock(key, EXTENDING);
    await backend.forceRelease(key);
    await lossOf(held);
    await held.release();
    await until(() => events.length === 4);
    expect(events.filter(({ type }) => type === "forceRelease")).toMatchObject([{ result: "ok" }]);
    expect(events.filter(({ type }) => type !== "forceRelease")).toMatchObject([
      { type: "acquire", result: "ok" },
      { type: "lost", result: "fail", lost: true, extensions: 0, keyHash: events[0]?.keyHash },
      { type: "release", result: "fail", lost: true, extensions: 0 },
    ]);
  });

  test.concurrent("refuses bad settings before it does anything", async () => {
    const [backend, key] = [connect(), newKey()];
    const cases: readonly (readonly [unknown, string])[] = [
      [{ everyMs: TTL_MS }, "autoExtend.everyMs must be less than ttlMs"],
      [{ everyMs: 0 }, "autoExtend.everyMs must be a positive number of milliseconds"],
      [{ maxMs: -1 }, "autoExtend.maxMs must be a positive number of milliseconds"],
      [{ maxStallMs: "1" }, "autoExtend.maxStallMs must be a positive number of milliseconds"],
      [{ maxMs: Number.NaN }, "autoExtend.maxMs must be a positive number of milliseconds"],
      ["yes", "autoExtend must be an object"],
    ];
    for (const [given, message] of cases) {
      const autoExtend = given as AutoExtend;
      const options = { ttlMs: TTL_MS, autoExtend };
      for (const refused of [
        backend.acquire({ key, ...options }),
        backend.lock(key, options),
        lock(backend, () => 1, { key, ...options }),
      ]) {
        expect(await lockError(refused)).toMatchObject({ code: "InvalidArgument", message });
      }
    }
    expect(await backend.isLocked({ key })).toBe(false);
  });
});
