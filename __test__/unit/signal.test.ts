import { afterEach, describe, expect, test, vi } from "vitest";
import { checkAborted, delay } from "syncguard/common";
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
});
