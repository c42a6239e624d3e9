import { afterEach, describe, expect, test, vi } from "vitest";
import { type AcquireResult, lock, LockError, type LockHandle } from "syncguard";
import { lockError, thrownLockError } from "../support/errors";
import {
  deferred,
  fakeBackend,
  type FakeCapabilities,
  grant,
  LOCKED,
  scripted,
} from "../support/fake-backend";
import { countingController } from "../support/signals";
import { settle, until } from "../support/until";

const KEY = "some:key";

afterEach(() => {
  // First the spies on fake timers, then these.
  vi.restoreAllMocks();
  vi.useRealTimers();
});

describe("signals", () => {
  const MESSAGES = {
    user: "Operation cancelled by user signal",
    acquisition: "Acquisition cancelled by acquisition signal",
  };
  const config = (which: string, signal: AbortSignal) =>
    which === "user" ? { key: KEY, signal } : { key: KEY, acquisition: { signal } };

  test.each(Object.entries(MESSAGES))("an aborted %s signal stops all", async (which, message) => {
    const backend = fakeBackend();
    const reason = new Error("why");
    const error = await lockError(lock(backend, () => 1, config(which, AbortSignal.abort(reason))));
    expect(error).toMatchObject({ code: "Aborted", message, cause: reason });
    expect(backend.acquired).toEqual([]);
  });

  test.each(Object.entries(MESSAGES))("a %s signal ends a wait", async (which, message) => {
    vi.useFakeTimers();
    const { controller, signal, listeners } = countingController();
    const result = lockError(lock(scripted(LOCKED), () => 1, config(which, signal)));
    await vi.advanceTimersByTimeAsync(10);
    expect(vi.getTimerCount()).toBe(1);
    controller.abort();
    expect(await result).toMatchObject({ code: "Aborted", message });
    expect(vi.getTimerCount()).toBe(0);
    expect(listeners()).toBe(0);
  });

  test.each(Object.entries(MESSAGES))(
    "a %s signal ends an attempt of a backend that knows no signals",
    async (which, message) => {
      const { promise, resolve } = deferred<AcquireResult<FakeCapabilities>>();
      const backend = fakeBackend({ acquire: () => promise });
      const { controller, signal, listeners } = countingController();
      const result = lockError(lock(backend, () => 1, config(which, signal)));
      await settle();
      controller.abort();
      expect(await result).toMatchObject({ code: "Aborted", message });
      expect(listeners()).toBe(0);
      // The grant comes late, and nobody wants it.
      expect(backend.released).toEqual([]);
      resolve(grant("late"));
      await until(() => backend.released.length === 1);
      expect(backend.released).toEqual([{ lockId: "late", signal: undefined }]);
    },
  );

  test("two signals reach the backend as one", async () => {
    for (const first of ["user", "acquisition"] as const) {
      const user = countingController();
      const acquisition = countingController();
      const backend = scripted(LOCKED);
      const { signal } = user;
      const result = lockError(
        lock(backend, () => 1, { key: KEY, signal, acquisition: { signal: acquisition.signal } }),
      );
      await settle();
      (first === "user" ? user : acquisition).controller.abort();
      expect(await result).toMatchObject({ message: MESSAGES[first] });
      expect(backend.acquired[0]?.signal?.aborted).toBe(true);
      expect([user.listeners(), acquisition.listeners()]).toEqual([0, 0]);
    }
  });

  test("a lock that is granted with the abort is released", async () => {
    const controller = new AbortController();
    const work = vi.fn();
    const backend = fakeBackend();
    const granting = fakeBackend({
      acquire: async (opts) => {
        const result = await backend.acquire(opts);
        controller.abort();
        return result;
      },
      release: backend.release,
    });
    const error = await lockError(lock(granting, work, { key: KEY, signal: controller.signal }));
    expect(error.code).toBe("Aborted");
    expect(work).not.toHaveBeenCalled();
    await until(() => backend.held.size === 0);
  });

  test("so is one that is granted just before the abort", async () => {
    const { promise, resolve } = deferred<AcquireResult<FakeCapabilities>>();
    const backend = fakeBackend({ acquire: () => promise });
    const controller = new AbortController();
    const work = vi.fn();
    const result = lockError(lock(backend, work, { key: KEY, signal: controller.signal }));
    await settle();
    resolve(grant("granted"));
    controller.abort();
    expect((await result).code).toBe("Aborted");
    expect(work).not.toHaveBeenCalled();
    await until(() => backend.released.length === 1);
    expect(backend.released).toEqual([{ lockId: "granted", signal: undefined }]);
  });

  test("an abort is told from an error that comes with it", async () => {
    const controller = new AbortController();
    const backend = fakeBackend({
      acquire: async () => {
        controller.abort();
        throw new LockError("Aborted", "the backend's words");
      },
    });
    const error = await lockError(lock(backend, () => 1, { key: KEY, signal: controller.signal }));
    expect(error.message).toBe(MESSAGES.user);
  });

  test("the acquisition's signal has no say once the lock is held", async () => {
    const controller = new AbortController();
    const result = await lock(
      fakeBackend(),
      (handle) => {
        controller.abort();
        return handle.signal.aborted;
      },
      { key: KEY, acquisition: { signal: controller.signal } },
    );
    expect(result).toBe(false);
  });
});

test("a signal that is aborted with that of another lock looks at that one, too", async () => {
  const backend = fakeBackend();
  const onLost = (): void => undefined;
  const stopped = (): unknown =>
    vi.spyOn(performance, "now").mockReturnValue(performance.now() + 5_000);
  await lock(
    backend,
    async (outer) => {
      const config = { key: "inner", ttlMs: 60_000, signal: outer.signal };
      await lock(
        backend,
        (inner) => {
          const { signal } = inner;
          expect(signal.aborted).toBe(false);
          stopped();
          const error = thrownLockError(() => signal.throwIfAborted());
          expect(error).toMatchObject({ code: "LockLost", context: { key: "outer" } });
          expect(signal.reason).toBe(outer.signal.reason);
          inner.assertHeld();
        },
        config,
      );
    },
    { key: "outer", ttlMs: 1_000, onLost },
  );
});

test("a handle that is over leaves no listener on the signal of its caller", async () => {
  const { controller, signal, listeners } = countingController();
  const over: LockHandle[] = [];
  await lock(fakeBackend(), (handle) => over.push(handle), { key: KEY, signal });
  const config = { key: KEY, signal, ttlMs: 1_000, onLost: () => undefined };
  await lock(fakeBackend(), (handle) => over.push(handle), config);
  const [released, other] = over as [LockHandle, LockHandle];
  expect(released.signal.aborted).toBe(false);
  expect(listeners()).toBe(0);
  controller.abort();
  expect(released.signal.aborted).toBe(false);
  expect(other.signal.aborted).toBe(true);
});
