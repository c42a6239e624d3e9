import { afterEach, describe, expect, test, vi } from "vitest";
import { checkAborted, delay, lock } from "syncguard/common";
import { createSqliteBackend } from "syncguard/sqlite";
import { lockError, thrownLockError } from "../support/errors";
import { countingController } from "../support/signals";

afterEach(() => {
  vi.useRealTimers();
});

describe("checkAborted", () => {
  test("throws for an aborted signal alone", () => {
    expect(() => {
      checkAborted();
      checkAborted(new AbortController().signal);
    }).not.toThrow();
    const error = thrownLockError(() => {
      checkAborted(AbortSignal.abort());
    });
    expect(error).toMatchObject({ code: "Aborted", message: "Operation aborted by signal" });
  });
});

describe("delay", () => {
  test("waits as long as asked", async () => {
    vi.useFakeTimers();
    const done = vi.fn();
    const { signal, listeners } = countingController();
    const waiting = delay(1_000, signal).then(done);
    await vi.advanceTimersByTimeAsync(999);
    expect(done).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(1);
    expect(done).toHaveBeenCalledOnce();
    await waiting;
    expect(listeners()).toBe(0);
  });

  test("ends with the signal and leaves nothing behind", async () => {
    vi.useFakeTimers();
    const { controller, signal, listeners } = countingController();
    const waiting = lockError(delay(60_000, signal));
    controller.abort();
    expect((await waiting).code).toBe("Aborted");
    expect(vi.getTimerCount()).toBe(0);
    expect(listeners()).toBe(0);
    expect((await lockError(delay(1, signal))).code).toBe("Aborted");
    expect(vi.getTimerCount()).toBe(0);
  });

  test("takes null for no signal, and refuses what it could not let go of", async () => {
    await delay(1, null as never);
    const deaf = { aborted: false, addEventListener: () => undefined };
    const error = await lockError(delay(60_000, deaf as never));
    expect(error).toMatchObject({
      code: "InvalidArgument",
      message: "signal must be an AbortSignal",
    });
  });
});

describe("a signal that refuses listeners", () => {
  test("is refused before anything starts", async () => {
    const cause = new Error("no");
    const signal = {
      aborted: false,
      addEventListener: () => {
        throw cause;
      },
      removeEventListener: () => undefined,
    } as unknown as AbortSignal;
    const backend = createSqliteBackend();
    for (const start of [
      () => backend.acquire({ key: "k", ttlMs: 60_000, signal }),
      () => lock(backend, () => 1, { key: "k", signal }),
      () => delay(60_000, signal),
    ]) {
      expect(await lockError(start())).toMatchObject({ code: "InvalidArgument", cause });
    }
    expect(await backend.isLocked({ key: "k" })).toBe(false);
  });
});
