import { expect, test } from "vitest";
import { generateLockId, lock } from "syncguard";
import { lockError } from "../support/errors";
import { countingController } from "../support/signals";
import { newKey, onEveryStore, take } from "../support/suite";
import { settlesWithin, until } from "../support/until";

onEveryStore("abort", (connect) => {
  test("an aborted signal stops every operation before it starts", async () => {
    const backend = connect();
    const key = newKey();
    const lockId = generateLockId();
    const signal = AbortSignal.abort();
    for (const operation of [
      backend.acquire({ key, ttlMs: 5_000, signal }),
      backend.release({ lockId, signal }),
      backend.extend({ lockId, ttlMs: 5_000, signal }),
      backend.isLocked({ key, signal }),
      backend.lookup({ key, signal }),
      backend.lookup({ lockId, signal }),
      backend.forceRelease(key, { signal }),
    ]) {
      const error = await lockError(operation);
      expect(error.code).toBe("Aborted");
      expect(error.message).toBe("Operation aborted by signal");
    }
    expect(await backend.isLocked({ key })).toBe(false);
  });

  test("a handle's release with an aborted signal can be done again", async () => {
    const backend = connect();
    const key = newKey();
    const first = await backend.lock(key);
    expect((await lockError(first.release(AbortSignal.abort()))).code).toBe("Aborted");
    expect(await backend.isLocked({ key })).toBe(true);
    expect(await first.release()).toEqual({ ok: true });
    const second = await take(backend, key);
    expect((await lockError(second.release(AbortSignal.abort()))).code).toBe("Aborted");
    await second[Symbol.asyncDispose]();
    expect(await backend.isLocked({ key })).toBe(false);
  });

  test("a signal that cannot be let go of loses no lock", async () => {
    const backend = connect();
    const key = newKey();
    const listeners = new Set<unknown>();
    const signal = {
      aborted: false,
      addEventListener: (_: string, listener: unknown) => listeners.add(listener),
      removeEventListener: () => {
        throw new Error("no");
      },
    } as unknown as AbortSignal;
    for (let round = 0; round < 3; round += 1) {
      const held = await backend.acquire({ key, ttlMs: 60_000, signal });
      expect(held.ok).toBe(true);
      expect(await held.release(signal)).toEqual({ ok: true });
      expect(await lock(backend, () => round, { key, signal })).toBe(round);
    }
    expect(listeners.size).toBe(1);
  });

  test("one signal for many operations gets one listener", async () => {
    const warnings: Error[] = [];
    const onWarning = (warning: Error): unknown => warnings.push(warning);
    process.on("warning", onWarning);
    try {
      const backend = connect();
      const { controller, signal, listeners } = countingController();
      const key = newKey();
      await take(backend, key);
      const waiting = Array.from({ length: 30 }, () =>
        lockError(lock(backend, () => undefined, { key, signal })),
      );
      const operations = Array.from({ length: 30 }, () => backend.isLocked({ key, signal }));
      expect(listeners()).toBe(1);
      await Promise.all(operations);
      expect(listeners()).toBe(1);
      controller.abort();
      for (const error of await Promise.all(waiting)) expect(error.code).toBe("Aborted");
      await until(() => listeners() === 0);
      // Warnings are told on the next turn.
      await new Promise((resolve) => setImmediate(resolve));
      expect(warnings).toEqual([]);
    } finally {
      process.off("warning", onWarning);
    }
  });

  test("an acquisition that is aborted in flight leaves no lock", async () => {
    const backend = connect();
    for (let round = 0; round < 20; round += 1) {
      const key = newKey();
      const controller = new AbortController();
      const pending = backend.acquire({ key, ttlMs: 60_000, signal: controller.signal });
      controller.abort();
      expect((await lockError(pending)).code).toBe("Aborted");
      await until(async () => !(await backend.isLocked({ key })));
    }
  });

  const ENDINGS = {
    user: "Operation cancelled by user signal",
    acquisition: "Acquisition cancelled by acquisition signal",
  } as const;
  test.each(Object.entries(ENDINGS))(
    "the %s signal ends the waiting within 20 ms",
    async (which, message) => {
      const backend = connect();
      const key = newKey();
      await take(backend, key);
      const acquisition = { retryDelayMs: 10_000, jitter: "none", timeoutMs: 60_000 } as const;
      // What ends it may be on another thread, which a busy machine can keep waiting: once is enough to show that nothing else
      // is waited for. Were that the pause before the next try, no round would be in time.
      for (let isInTime = false; !isInTime;) {
        const controller = new AbortController();
        const { signal } = controller;
        const config =
          which === "user"
            ? { key, signal, acquisition }
            : { key, acquisition: { ...acquisition, signal } };
        const waiting = lockError(lock(backend, () => undefined, config));
        // Let it reach its wait.
        await backend.isLocked({ key });
        await backend.isLocked({ key });
        controller.abort();
        isInTime = await settlesWithin(waiting, 20);
        const error = await waiting;
        expect(error).toMatchObject({ code: "Aborted", message });
        expect(error.context?.key).toBe(key);
      }
    },
  );

  test("no listener stays on a signal", async () => {
    const backend = connect();
    const key = newKey();
    const { signal, listeners } = countingController();
    await lock(backend, () => undefined, { key, signal, acquisition: { signal } });
    const held = await take(backend, key);
    const acquisition = { timeoutMs: 30, retryDelayMs: 5, signal };
    await lockError(lock(backend, () => undefined, { key, signal, acquisition }));
    await backend.lookup({ key, signal });
    await held.release(signal);
    expect(signal.addEventListener).toHaveBeenCalled();
    expect(listeners()).toBe(0);
  });

  test("a signal that is aborted during the work does not keep the lock held", async () => {
    const backend = connect();
    const key = newKey();
    const controller = new AbortController();
    const value = await lock(
      backend,
      (handle) => {
        controller.abort();
        expect(handle.signal?.aborted).toBe(true);
        return "done";
      },
      { key, signal: controller.signal, ttlMs: 60_000 },
    );
    expect(value).toBe("done");
    expect(await backend.isLocked({ key })).toBe(false);
  });
});
