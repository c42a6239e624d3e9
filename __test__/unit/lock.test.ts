import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { lock, LockError } from "syncguard";
import { createAutoLock, withTelemetry } from "syncguard/common";
import { createLock } from "syncguard/sqlite";
import { createTestBackend } from "syncguard/testing";
import { lockError, rejection } from "../support/errors";
import { fakeBackend, grant, LOCKED, scripted } from "../support/fake-backend";

const KEY = "some:key";

afterEach(() => {
  // First the spies on fake timers, then these.
  vi.restoreAllMocks();
  vi.useRealTimers();
});

describe("the loop", () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });

  /** The delays that are given to setTimeout until the promise settles. */
  async function delaysOf(start: () => Promise<unknown>): Promise<unknown[]> {
    const timer = vi.spyOn(globalThis, "setTimeout");
    const settled = start().catch((error: unknown) => error);
    await vi.runAllTimersAsync();
    await settled;
    return timer.mock.calls.map(([, delayMs]) => delayMs);
  }

  test("doubles the delay up to the time left", async () => {
    const acquisition = { jitter: "none", maxRetries: 20, timeoutMs: 1_000 } as const;
    const backend = scripted(LOCKED);
    const start = () => lock(backend, () => 1, { key: KEY, acquisition });
    expect(await delaysOf(start)).toEqual([100, 200, 400, 300]);
    expect(backend.acquired).toHaveLength(5);
  });

  test("keeps a fixed delay, and counts retries", async () => {
    const acquisition = { jitter: "none", backoff: "fixed", maxRetries: 3 } as const;
    const start = () => lock(scripted(LOCKED), () => 1, { key: KEY, acquisition });
    expect(await delaysOf(start)).toEqual([100, 100, 100]);
  });

  test("scatters with Math.random, by halves or in full", async () => {
    vi.spyOn(Math, "random").mockReturnValue(0.5);
    const wait = (jitter: "equal" | "full") =>
      delaysOf(() =>
        lock(scripted(LOCKED), () => 1, { key: KEY, acquisition: { jitter, maxRetries: 2 } }),
      );
    expect(await wait("equal")).toEqual([75, 150]);
    vi.mocked(setTimeout).mockClear();
    expect(await wait("full")).toEqual([50, 100]);
  });

  test("has the defaults of the contract", async () => {
    vi.spyOn(Math, "random").mockReturnValue(0);
    const backend = scripted(LOCKED);
    const start = Date.now();
    // 50, 100, … 1600 add up to 3150; the next delay of 3200 is cut to the time left.
    expect(await delaysOf(() => lock(backend, () => 1, { key: KEY }))).toEqual([
      50, 100, 200, 400, 800, 1600, 1850,
    ]);
    expect(Date.now() - start).toBe(5_000);
    expect(backend.acquired[0]).toMatchObject({ key: KEY, ttlMs: 30_000 });
  });

  test("measures with Date.now", async () => {
    const backend = fakeBackend({
      acquire: async () => {
        vi.setSystemTime(Date.now() + 10_000);
        return LOCKED;
      },
    });
    const error = await lockError(lock(backend, () => 1, { key: KEY }));
    expect(error.code).toBe("AcquisitionTimeout");
    expect(error.message).toBe(
      "Timeout reached before next retry (10000 ms elapsed): timeoutMs is over, and somebody holds the lock",
    );
    expect(backend.acquired).toHaveLength(1);
  });

  test("tries once without retries or time", async () => {
    for (const [acquisition, message] of [
      [
        { maxRetries: 0 },
        "Failed to acquire lock after 0 ms and 1 attempt: maxRetries allows no more attempts, and somebody holds the lock",
      ],
      [
        { timeoutMs: 0 },
        "Timeout reached before next retry (0 ms elapsed): timeoutMs is over, and somebody holds the lock",
      ],
    ] as const) {
      const backend = scripted(LOCKED);
      const error = await lockError(lock(backend, () => 1, { key: KEY, acquisition }));
      expect(error).toMatchObject({ code: "AcquisitionTimeout", message });
      expect(backend.acquired).toHaveLength(1);
    }
  });

  test("goes on after failures that pass", async () => {
    const backend = scripted(
      new LockError("ServiceUnavailable"),
      new LockError("NetworkTimeout"),
      LOCKED,
      grant(),
    );
    const result = lock(backend, ({ fence }) => fence, { key: KEY });
    await vi.runAllTimersAsync();
    expect(await result).toBe("000000000000001");
    expect(backend.acquired).toHaveLength(4);
  });

  test("reports the last failure in the end, and what was tried", async () => {
    const cause = new Error("connect ECONNREFUSED 127.0.0.1:6379");
    const last = new LockError("NetworkTimeout", "last", { lockId: "some id", cause });
    const backend = scripted(LOCKED, new LockError("ServiceUnavailable"), last);
    const result = lockError(lock(backend, () => 1, { key: KEY }));
    await vi.runAllTimersAsync();
    const error = await result;
    const attempts = backend.acquired.length;
    expect(attempts).toBeGreaterThan(3);
    expect(error.code).toBe("NetworkTimeout");
    expect(error.message).toBe(`gave up after 5000 ms and ${attempts} attempts: last`);
    expect(error.cause).toBe(cause);
    expect(error.context).toEqual({ key: KEY, lockId: "some id", cause });
    // Others may have it as well.
    expect(last.message).toBe("last");
  });

  test("does not let an attempt that it cut short hide what is known", async () => {
    const cut = new LockError("NetworkTimeout", "Operation timed out after 100 ms");
    const refused = new LockError("ServiceUnavailable", "connection refused");
    for (const [before, code, message] of [
      [
        [refused],
        "ServiceUnavailable",
        /^gave up after 5100 ms and 2 attempts: connection refused$/,
      ],
      [[refused, LOCKED], "AcquisitionTimeout", /^Timeout reached before next retry/],
      [[LOCKED, refused], "ServiceUnavailable", /^gave up after .*: connection refused$/],
      [[LOCKED], "AcquisitionTimeout", /^Timeout reached before next retry/],
      [[], "NetworkTimeout", /^Operation timed out after 100 ms$/],
    ] as const) {
      const script: (typeof refused | typeof LOCKED)[] = [...before];
      const backend = fakeBackend({
        acquire: async () => {
          const next = script.shift();
          if (next === undefined) {
            // All the time that was left, and the least that an attempt gets.
            vi.setSystemTime(start + 5_100);
            throw cut;
          }
          if (next instanceof LockError) throw next;
          return next;
        },
      });
      const start = Date.now();
      const result = lockError(lock(backend, () => 1, { key: KEY }));
      await vi.runAllTimersAsync();
      const error = await result;
      expect(error.code).toBe(code);
      expect(error.message).toMatch(message);
    }
  });
});

describe("errors of a backend", () => {
  test.each(["AuthFailed", "InvalidArgument", "RateLimited", "Aborted", "Internal", "Odd"])(
    "%s is rethrown as it is",
    async (code) => {
      const failure = new LockError(code as "Internal", "as it is");
      const backend = scripted(failure);
      expect(await rejection(lock(backend, () => 1, { key: KEY }))).toBe(failure);
      expect(backend.acquired).toHaveLength(1);
    },
  );

  test("anything else becomes Internal with its cause", async () => {
    const failure = new Error(`driver failed on ${KEY}`);
    const error = await lockError(lock(scripted(failure), () => 1, { key: KEY }));
    expect(error.code).toBe("Internal");
    expect(error.cause).toBe(failure);
    expect(error.context).toEqual({ key: KEY, cause: failure });
    // The words of whoever wrote the backend are left as they are.
    expect(error.message).toBe(failure.message);
    for (const [thrown, message] of [
      ["text", "text"],
      [{ odd: true }, "an object was thrown that is no error"],
    ]) {
      const backend = fakeBackend({ acquire: () => Promise.reject(thrown) });
      const wrapped = await lockError(lock(backend, () => 1, { key: KEY }));
      expect(wrapped).toMatchObject({ code: "Internal", message, cause: thrown });
    }
  });

  test("a synchronous throw becomes a rejection", async () => {
    const backend = fakeBackend({
      acquire: () => {
        throw new Error("sync");
      },
    });
    const pending = lock(backend, () => 1, { key: KEY });
    expect((await lockError(pending)).code).toBe("Internal");
  });

  test.each([
    undefined,
    null,
    1,
    "ok",
    [],
    {},
    { ok: 1 },
    { ok: true },
    { ok: true, lockId: "", expiresAtMs: 1, fence: "1" },
    { ok: true, lockId: 7, expiresAtMs: 1, fence: "1" },
    { ok: true, lockId: "l", expiresAtMs: Number.NaN, fence: "1" },
    { ok: true, lockId: "l", expiresAtMs: 1 },
    { ok: true, lockId: "l", expiresAtMs: 1, fence: 1 },
  ])("a malformed result becomes Internal: %j", async (result) => {
    const work = vi.fn();
    const backend = fakeBackend({ acquire: async () => result as never });
    const error = await lockError(lock(backend, work, { key: KEY }));
    expect(error.code).toBe("Internal");
    expect(error.message).toContain("malformed");
    expect(work).not.toHaveBeenCalled();
  });

  test("a backend without fences needs none", async () => {
    const capabilities = { supportsFencing: false, timeAuthority: "client" } as const;
    const backend = {
      ...fakeBackend(),
      capabilities,
      acquire: async () => ({ ok: true, lockId: "l", expiresAtMs: 1 }) as const,
    };
    expect(await lock(backend as never, ({ fence }) => fence, { key: KEY })).toBeUndefined();
  });
});

describe("what a backend sees", () => {
  test("key, ttlMs and signal, and nothing else", async () => {
    const backend = fakeBackend();
    await lock(backend, () => 1, { key: KEY, ttlMs: 7_000 });
    const { signal } = new AbortController();
    await lock(backend, () => 1, { key: KEY, signal });
    await lock(backend, () => 1, { key: KEY, acquisition: { signal } });
    expect(backend.acquired).toStrictEqual([
      { key: KEY, ttlMs: 7_000, signal: undefined },
      { key: KEY, ttlMs: 30_000, signal },
      { key: KEY, ttlMs: 30_000, signal },
    ]);
    for (const args of backend.acquired) {
      expect(Reflect.ownKeys({ ...args })).toEqual(["key", "ttlMs", "signal"]);
    }
  });

  test("the key in NFC, whatever its spelling", async () => {
    const backend = fakeBackend();
    const [composed, decomposed] = ["caf\u00e9", "cafe\u0301"];
    const seen = await lock(backend, ({ key }) => [key, ...backend.held.keys()], {
      key: decomposed,
    });
    expect(seen).toEqual([decomposed, composed]);
    await createAutoLock(backend)(() => 1, { key: decomposed });
    const observed = withTelemetry(backend, { onEvent: () => undefined });
    await lock(observed, () => 1, { key: decomposed });
    expect(backend.acquired.map(({ key }) => key)).toEqual([composed, composed, composed]);
  });

  test("a release without a signal", async () => {
    const backend = fakeBackend();
    const controller = new AbortController();
    const work = (): void => {
      controller.abort();
    };
    await lock(backend, work, { key: KEY, signal: controller.signal });
    expect(backend.released).toHaveLength(1);
    expect(backend.released[0]?.signal).toBeUndefined();
    expect(backend.held.size).toBe(0);
  });

  test("nothing, if options make no sense", async () => {
    const backend = fakeBackend();
    const bad: unknown[] = [
      { key: KEY, ttlMs: 0 },
      { key: "" },
      { key: "k".repeat(513) },
      { key: "\ud800" },
      { key: KEY, acquisition: { maxRetries: -1 } },
      { key: KEY, acquisition: { backoff: "none" } },
      { key: KEY, acquisition: 5 },
      { key: KEY, signal: "stop" },
      { key: KEY, onReleaseError: "log" },
      null,
    ];
    for (const config of bad) {
      const error = await lockError(lock(backend, () => 1, config as { key: string }));
      expect(error.code).toBe("InvalidArgument");
    }
    expect((await lockError(lock(backend, "fn" as never, { key: KEY }))).message).toBe(
      "fn must be a function",
    );
    expect((await lockError(lock({} as typeof backend, () => 1, { key: KEY }))).code).toBe(
      "InvalidArgument",
    );
    const work = () => 1;
    for (const misplaced of [
      lock(KEY as never, work as never),
      lock(KEY as never, { key: KEY } as never, work as never),
      lock(backend, work, KEY as never),
    ]) {
      expect((await lockError(misplaced)).message).toContain("in the last argument");
    }
    expect(backend.acquired).toEqual([]);
  });
});

describe("the release", () => {
  const failing = (thrown: unknown) => fakeBackend({ release: () => Promise.reject(thrown) });

  test("hides neither result nor error of the work", async () => {
    const onReleaseError = vi.fn();
    const failure = new Error("down");
    const backend = failing(failure);
    expect(await lock(backend, () => 42, { key: KEY, onReleaseError })).toBe(42);
    backend.held.clear();
    const thrown = new Error("work");
    const work = (): never => {
      throw thrown;
    };
    expect(await rejection(lock(backend, work, { key: KEY, onReleaseError }))).toBe(thrown);
    expect(onReleaseError).toHaveBeenCalledTimes(2);
    const lockId = backend.released[0]?.lockId;
    expect(onReleaseError.mock.calls[0]).toEqual([
      failure,
      { lockId, key: KEY, source: "disposal" },
    ]);
  });

  test("ends in time, if there is a limit, and is reported when it fails", async () => {
    const failure = new Error("cancelled");
    let cancel = (): void => undefined;
    const backend = fakeBackend({
      release: ({ signal }) =>
        new Promise((_, reject) => {
          cancel = () => reject(failure);
          signal?.addEventListener("abort", () => setImmediate(cancel));
        }),
    });
    const onReleaseError = vi.fn();
    const config = { key: KEY, onReleaseError, disposeTimeoutMs: 5 };
    expect(await lock(backend, () => 42, config)).toBe(42);
    await vi.waitFor(() => expect(onReleaseError).toHaveBeenCalledTimes(1));
    expect(onReleaseError.mock.calls[0]?.[0]).toBe(failure);
    const error = await lockError(lock(backend, () => 1, { key: KEY, disposeTimeoutMs: 0 }));
    expect(error.message).toBe("disposeTimeoutMs must be a positive number");
  });

  test("is reported as the backend says, unless lock() says otherwise", async () => {
    const [ofBackend, ofCall] = [vi.fn(), vi.fn()];
    const backend = createTestBackend({ onReleaseError: ofBackend });
    backend.faults.failNext("release", "AuthFailed", 2);
    await lock(backend, () => 1, { key: "a" });
    await lock(backend, () => 1, { key: "b", onReleaseError: ofCall });
    expect(ofBackend).toHaveBeenCalledTimes(1);
    expect(ofCall).toHaveBeenCalledTimes(1);
  });

  test("goes to the default handler if there is no other", async () => {
    vi.stubEnv("NODE_ENV", "development");
    const log = vi.spyOn(console, "error").mockImplementation(() => undefined);
    await lock(failing(new LockError("NetworkTimeout")), () => 1, { key: KEY });
    expect(log).toHaveBeenCalledWith("[SyncGuard] Lock disposal failed:", {
      error: "NetworkTimeout",
      errorName: "LockError",
      source: "disposal",
    });
  });

  test("survives a callback that throws and a thrown value that is no error", async () => {
    const onReleaseError = vi.fn(() => {
      throw new Error("callback");
    });
    expect(await lock(failing("text"), () => 1, { key: KEY, onReleaseError })).toBe(1);
    expect(onReleaseError).toHaveBeenCalledWith(
      expect.objectContaining({ originalError: "text" }),
      expect.anything(),
    );
  });
});

describe("createLock", () => {
  test("can be closed, also at the end of a block", async () => {
    const bound = createLock();
    expect(await bound(({ fence }) => fence.length, { key: KEY })).toBe(15);
    await bound.close();
    await bound.close();
    expect((await lockError(bound(() => 1, { key: KEY }))).message).toContain("closed");
    const disposed = createLock();
    {
      await using inner = disposed;
      await inner(() => 1, { key: KEY });
    }
    expect((await lockError(disposed(() => 1, { key: KEY }))).message).toContain("closed");
  });
});

describe("createAutoLock", () => {
  test("binds a backend of one's own", async () => {
    const backend = fakeBackend();
    const bound = createAutoLock(backend);
    expect(await bound(() => backend.held.size, { key: KEY })).toBe(1);
    expect(backend.held.size).toBe(0);
    expect(() => createAutoLock(undefined as never)).toThrow(LockError);
  });
});
