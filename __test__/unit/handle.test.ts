import { afterEach, describe, expect, test, vi } from "vitest";
import {
  acquireHandle,
  createDisposableHandle,
  decorateAcquireResult,
  type HeldLock as Held,
  LockError,
  type LockBackend,
  type ReleaseResult,
} from "syncguard/common";
import { createSqliteBackend, type SqliteCapabilities } from "syncguard/sqlite";
import { lockError, rejection } from "../support/errors";
import { deferred, fakeBackend, type FakeCapabilities } from "../support/fake-backend";
import { settle } from "../support/until";

const KEY = "secret:key";
const LOCK_ID = "secretsecretsecretsecr";
const RESULT = {
  ok: true,
  lockId: LOCK_ID,
  expiresAtMs: 1,
  fence: "000000000000001",
} as const;
const CONTEXT = { lockId: LOCK_ID, key: KEY, source: "disposal" };

type HeldLock = Held<SqliteCapabilities>;
type Release = LockBackend<FakeCapabilities>["release"];

function handleOf(release: Release, onReleaseError?: (error: Error) => void, timeoutMs?: number) {
  const backend = fakeBackend({ release });
  return {
    backend,
    ...createDisposableHandle(backend, RESULT, KEY, onReleaseError, timeoutMs),
  };
}

afterEach(() => {
  vi.useRealTimers();
});

describe("release", () => {
  test("happens at most once", async () => {
    const { backend, release } = handleOf(async () => ({ ok: true }));
    expect(await Promise.all([release(), release()])).toEqual([{ ok: true }, { ok: false }]);
    expect(await release()).toEqual({ ok: false });
    expect(backend.released).toEqual([{ lockId: LOCK_ID, signal: undefined }]);
  });

  test("throws what the backend throws, and is not tried again", async () => {
    const failure = new LockError("ServiceUnavailable");
    const { backend, release } = handleOf(() => Promise.reject(failure));
    expect(await rejection(release())).toBe(failure);
    expect(await release()).toEqual({ ok: false });
    expect(backend.released).toHaveLength(1);
  });

  test("never throws synchronously", async () => {
    const { release, extend } = createDisposableHandle(
      fakeBackend({
        release: () => {
          throw new Error("sync");
        },
        extend: () => {
          throw new Error("sync");
        },
      }),
      RESULT,
      KEY,
    );
    const [released, extended] = [release(), extend(5)];
    expect(await rejection(released)).toHaveProperty("message", "sync");
    expect(await rejection(extended)).toHaveProperty("message", "sync");
  });

  test("is not spent on a signal that is aborted or none", async () => {
    const { backend, release } = handleOf(async () => ({ ok: true }));
    const why = new Error("why");
    expect(await rejection(release(AbortSignal.abort(why)))).toMatchObject({
      code: "Aborted",
      cause: why,
    });
    const deaf = { aborted: false, addEventListener: () => undefined };
    for (const signal of [deaf, {}, "stop"]) {
      expect(await rejection(release(signal as never))).toHaveProperty("code", "InvalidArgument");
    }
    expect(backend.released).toEqual([]);
    expect(await release()).toEqual({ ok: true });
    expect(await release(AbortSignal.abort())).toEqual({ ok: false });
  });

  test("is left to disposal after a signal that is aborted", async () => {
    const handle = handleOf(async () => ({ ok: true }));
    await rejection(handle.release(AbortSignal.abort()));
    await handle[Symbol.asyncDispose]();
    expect(handle.backend.released).toHaveLength(1);
  });

  test("hands its signal on", async () => {
    const { backend, release } = handleOf(async () => ({ ok: true }));
    const { signal } = new AbortController();
    await release(signal);
    expect(backend.released).toEqual([{ lockId: LOCK_ID, signal }]);
  });
});

describe("extend", () => {
  test("is not gated by a release", async () => {
    const extend = vi.fn(async () => ({ ok: true, expiresAtMs: 9 }) as const);
    const handle = createDisposableHandle(fakeBackend({ extend }), RESULT, KEY);
    await handle.release();
    const { signal } = new AbortController();
    expect(await handle.extend(7, signal)).toEqual({ ok: true, expiresAtMs: 9 });
    expect(extend).toHaveBeenCalledWith({ lockId: LOCK_ID, ttlMs: 7, signal });
  });
});

describe("the end of a held lock", () => {
  test("is moved by extend, where it succeeded", async () => {
    const answers = [{ ok: true, expiresAtMs: 9 }, { ok: false }] as const;
    let call = 0;
    const backend = fakeBackend({ extend: async () => answers[call++]! });
    const held = createDisposableHandle(backend, RESULT, KEY);
    const { extend } = held;
    expect(held.expiresAtMs).toBe(RESULT.expiresAtMs);
    await extend(5);
    expect(held.expiresAtMs).toBe(9);
    await extend(5);
    expect(held.expiresAtMs).toBe(9);
    expect(RESULT.expiresAtMs).toBe(1);
  });
});

describe("createDisposableHandle", () => {
  test("needs two methods, and gives the lock itself", async () => {
    const release = vi.fn(async () => ({ ok: true }) as const);
    const extend = vi.fn(async () => ({ ok: true, expiresAtMs: 2 }) as const);
    const held = createDisposableHandle({ release, extend }, RESULT, KEY);
    expect(held).toMatchObject(RESULT);
    const { signal } = new AbortController();
    await held.extend(7, signal);
    expect(extend.mock.calls).toEqual([[{ lockId: LOCK_ID, ttlMs: 7, signal }]]);
    await held.release(signal);
    expect(release.mock.calls).toEqual([[{ lockId: LOCK_ID, signal }]]);
    await held[Symbol.asyncDispose]();
    expect(release).toHaveBeenCalledOnce();
  });

  test("does nothing for a result without a lock", async () => {
    const release = vi.fn();
    const none = createDisposableHandle(
      { release, extend: vi.fn() },
      { ok: false, reason: "locked" },
      KEY,
    );
    expect(none).toMatchObject({ ok: false, reason: "locked" });
    expect(await none.release()).toEqual({ ok: false });
    expect(await none.extend(5)).toEqual({ ok: false });
    await none[Symbol.asyncDispose]();
    expect(release).not.toHaveBeenCalled();
  });
});

describe("disposal", () => {
  test("releases once", async () => {
    const handle = handleOf(async () => ({ ok: true }));
    await Promise.all([handle[Symbol.asyncDispose](), handle[Symbol.asyncDispose]()]);
    await handle[Symbol.asyncDispose]();
    expect(await handle.release()).toEqual({ ok: false });
    expect(handle.backend.released).toHaveLength(1);
  });

  test("waits for a release in flight and leaves its error to its caller", async () => {
    const { promise, reject } = deferred<ReleaseResult>();
    const onReleaseError = vi.fn();
    const handle = handleOf(() => promise, onReleaseError);
    const releasing = rejection(handle.release());
    const disposed = vi.fn();
    const disposing = handle[Symbol.asyncDispose]().then(disposed);
    await settle();
    expect(disposed).not.toHaveBeenCalled();
    const failure = new Error("late");
    reject(failure);
    expect(await releasing).toBe(failure);
    await disposing;
    expect(onReleaseError).not.toHaveBeenCalled();
  });

  test("reports errors and never throws", async () => {
    const failure = new Error("down");
    const onReleaseError = vi.fn();
    const handle = handleOf(() => Promise.reject(failure), onReleaseError);
    await handle[Symbol.asyncDispose]();
    expect(onReleaseError.mock.calls).toEqual([[failure, CONTEXT]]);
  });

  test("is quiet about a lock that is gone", async () => {
    const onReleaseError = vi.fn();
    await handleOf(async () => ({ ok: false }), onReleaseError)[Symbol.asyncDispose]();
    expect(onReleaseError).not.toHaveBeenCalled();
  });

  test.each(["text", undefined, null, { odd: true }, Object.create(null)])(
    "wraps what is no error: %j",
    async (thrown: unknown) => {
      const errors: (Error & { originalError?: unknown })[] = [];
      const handle = handleOf(
        () => Promise.reject(thrown),
        (error) => errors.push(error),
      );
      await handle[Symbol.asyncDispose]();
      expect(errors).toHaveLength(1);
      expect(errors[0]).toBeInstanceOf(Error);
      expect(errors[0]?.originalError).toBe(thrown);
    },
  );

  test.each([
    [
      "throws",
      () => {
        throw new Error("callback");
      },
    ],
    ["rejects", (): unknown => Promise.reject(new Error("callback"))],
  ])("survives a callback that %s", async (_, callback) => {
    const handle = handleOf(() => Promise.reject(new Error("down")), callback);
    await expect(handle[Symbol.asyncDispose]()).resolves.toBeUndefined();
    await settle();
  });

  test("stops waiting at its limit", async () => {
    vi.useFakeTimers();
    const timer = vi.spyOn(globalThis, "setTimeout");
    const { promise, reject } = deferred<ReleaseResult>();
    const signals: (AbortSignal | undefined)[] = [];
    const errors: Error[] = [];
    const handle = handleOf(
      ({ signal }) => {
        signals.push(signal);
        return promise;
      },
      (error) => errors.push(error),
      500,
    );
    const disposed = vi.fn();
    const disposal = handle[Symbol.asyncDispose]();
    // One, and before anything is waited for.
    expect(timer.mock.calls.map(([, delayMs]) => delayMs)).toEqual([500]);
    const disposing = disposal.then(disposed);
    await vi.advanceTimersByTimeAsync(499);
    expect(disposed).not.toHaveBeenCalled();
    expect(signals[0]?.aborted).toBe(false);
    await vi.advanceTimersByTimeAsync(1);
    await disposing;
    expect(signals[0]?.aborted).toBe(true);
    // A limit is no error: what counts is what becomes of the release.
    expect(errors).toEqual([]);
    const late = new Error("late");
    reject(late);
    await vi.advanceTimersByTimeAsync(0);
    expect(errors).toEqual([late]);
    expect(timer).toHaveBeenCalledOnce();
  });

  test("reports once what a release says to its cancellation", async () => {
    vi.useFakeTimers();
    const aborted = new Error("in its own words");
    const onReleaseError = vi.fn();
    const handle = handleOf(
      ({ signal }) =>
        new Promise((_, reject) => {
          signal?.addEventListener("abort", () => {
            reject(aborted);
          });
        }),
      onReleaseError,
      50,
    );
    const disposing = handle[Symbol.asyncDispose]();
    await vi.advanceTimersByTimeAsync(50);
    await disposing;
    await vi.advanceTimersByTimeAsync(0);
    expect(onReleaseError.mock.calls).toEqual([[aborted, CONTEXT]]);
  });

  test("reports once a release that fails before the limit", async () => {
    vi.useFakeTimers();
    const down = new Error("down");
    const onReleaseError = vi.fn();
    await handleOf(() => Promise.reject(down), onReleaseError, 50)[Symbol.asyncDispose]();
    expect(vi.getTimerCount()).toBe(0);
    expect(onReleaseError.mock.calls).toEqual([[down, CONTEXT]]);
  });

  test("is quiet about a release that never ends", async () => {
    vi.useFakeTimers();
    const onReleaseError = vi.fn();
    const handle = handleOf(() => new Promise(() => undefined), onReleaseError, 50);
    const disposing = handle[Symbol.asyncDispose]();
    await vi.advanceTimersByTimeAsync(10_000);
    await expect(disposing).resolves.toBeUndefined();
    expect(onReleaseError).not.toHaveBeenCalled();
  });

  test("leaves no timer when the release is in time", async () => {
    vi.useFakeTimers();
    const onReleaseError = vi.fn();
    await handleOf(async () => ({ ok: true }), onReleaseError, 500)[Symbol.asyncDispose]();
    expect(vi.getTimerCount()).toBe(0);
    expect(onReleaseError).not.toHaveBeenCalled();
  });

  test("takes an endless limit for none", async () => {
    const onReleaseError = vi.fn();
    const release: Release = async () => {
      await settle();
      return { ok: true };
    };
    await handleOf(release, onReleaseError, Infinity)[Symbol.asyncDispose]();
    expect(onReleaseError).not.toHaveBeenCalled();
  });
});

describe("the default handler", () => {
  const dispose = async (thrown: unknown): Promise<unknown[][]> => {
    const log = vi.spyOn(console, "error").mockImplementation(() => undefined);
    await handleOf(() => Promise.reject(thrown))[Symbol.asyncDispose]();
    return log.mock.calls;
  };

  test("logs, without key and lock id", async () => {
    vi.stubEnv("NODE_ENV", "development");
    const calls = await dispose(new LockError("ServiceUnavailable", `no ${KEY} for ${LOCK_ID}`));
    expect(calls).toEqual([
      [
        "[SyncGuard] Lock disposal failed:",
        { error: "no [key] for [lockId]", errorName: "LockError", source: "disposal" },
      ],
    ]);
    expect(JSON.stringify(calls)).not.toContain("secret");
  });

  test.each([
    ["production", undefined, 0],
    ["production", "1", 0],
    ["production", "true", 1],
    ["test", undefined, 1],
    [undefined, undefined, 1],
  ])("NODE_ENV %s and SYNCGUARD_DEBUG %s give %d lines", async (env, debug, lines) => {
    vi.stubEnv("NODE_ENV", env);
    vi.stubEnv("SYNCGUARD_DEBUG", debug);
    expect(await dispose(new Error("down"))).toHaveLength(lines);
  });
});

describe("decorateAcquireResult", () => {
  test("adds the methods and keeps the result", async () => {
    const backend = fakeBackend();
    const result = await backend.acquire({ key: KEY, ttlMs: 5_000 });
    const decorated = decorateAcquireResult(backend, result, KEY);
    expect(decorated).toMatchObject(result);
    for (const name of ["release", "extend", Symbol.asyncDispose]) {
      expect(Object.hasOwn(decorated, name)).toBe(true);
    }
    expect(await decorated.release()).toEqual({ ok: true });
  });

  test("adds methods that do nothing where there is no lock", async () => {
    const backend = fakeBackend();
    const decorated = decorateAcquireResult(backend, { ok: false, reason: "locked" }, KEY);
    expect(decorated).toMatchObject({ ok: false, reason: "locked" });
    expect(await decorated.release()).toEqual({ ok: false });
    expect(await decorated.extend(5)).toEqual({ ok: false });
    await decorated[Symbol.asyncDispose]();
    expect(backend.released).toEqual([]);
  });

  test.each([0, -1, Number.NaN, "5"])("refuses the limit %s", (limit) => {
    expect(() =>
      decorateAcquireResult(fakeBackend(), RESULT, KEY, undefined, limit as number),
    ).toThrow("disposeTimeoutMs must be a positive number");
  });
});

describe("acquireHandle", () => {
  test("works on a backend that decorates its results", async () => {
    const backend = fakeBackend();
    const decorating: LockBackend<FakeCapabilities> = {
      ...backend,
      acquire: async (opts) =>
        decorateAcquireResult(backend, await backend.acquire(opts), opts.key),
    };
    {
      await using held = await acquireHandle(decorating, { key: KEY, ttlMs: 5_000 });
      expect(held.ok).toBe(true);
    }
    expect(backend.held.size).toBe(0);
  });

  test("passes a plain result without a lock on as it is", async () => {
    const none = { ok: false, reason: "locked" } as const;
    const backend = fakeBackend({ acquire: async () => none });
    expect(await acquireHandle(backend, { key: KEY, ttlMs: 5_000 })).toBe(none);
  });

  test("refuses what is no result", async () => {
    const backend = fakeBackend({ acquire: async () => undefined as never });
    const error = await lockError(acquireHandle(backend, { key: KEY, ttlMs: 5_000 }));
    expect(error.code).toBe("Internal");
  });

  test("refuses a plain result for a lock, which it leaves to nobody", async () => {
    const backend = fakeBackend();
    const error = await lockError(acquireHandle(backend, { key: KEY, ttlMs: 5_000 }));
    expect(error.message).toMatch(/^Backend\.acquire\(\) must return a decorated result/);
    await settle();
    expect(backend.held.size).toBe(0);
  });
});

describe("what stands before a handle has its signal", () => {
  const stands: [string, (held: HeldLock) => HeldLock][] = [
    ["a Proxy", (held) => new Proxy(held, {})],
    [
      "a Proxy of a Proxy with traps",
      (held) =>
        new Proxy(
          new Proxy(held, {
            get: (target, name, self) => Reflect.get(target, name, self) as unknown,
          }),
          {},
        ),
    ],
    ["an object that inherits from it", (held) => Object.create(held) as HeldLock],
  ];
  test.each(stands)("%s", async (_, before) => {
    const backend = createSqliteBackend();
    const held = await backend.lock("proxied", { ttlMs: 60_000 });
    const proxied = before(held);
    expect(proxied.signal.aborted).toBe(false);
    expect(proxied.signal).toBe(held.signal);
    expect((await proxied.extend(60_000)).ok).toBe(true);
    expect(await proxied.release()).toEqual({ ok: true });
    await proxied[Symbol.asyncDispose]();
    await backend.close();
  });
});
