/** What suites of tests over SyncGuard 2 do: backends written by hand, results that name another key, thrown values of every kind. */

import { runInNewContext } from "node:vm";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import {
  acquireHandle,
  createAutoLock,
  createDisposableHandle,
  decorateAcquireResult,
  FAILURE_REASON,
  hashKey,
  lock,
  LockError,
  type LockBackend,
  type LockEvent,
  type OnReleaseError,
  withTelemetry,
} from "syncguard/common";
import { lead } from "syncguard";
import { createTestBackend, type TestBackend } from "syncguard/testing";
import { lockError, rejection } from "../support/errors";
import { deferred, fakeBackend, type FakeCapabilities, grant } from "../support/fake-backend";
import { settle } from "../support/until";

const [KEY, OTHER] = ["orders:4711", "named:by:the:mock"];
const LOCK_ID = "lock-id";
const CONTEXT = { lockId: LOCK_ID, key: KEY, source: "disposal" };
type Mock = LockBackend<FakeCapabilities>;
type Release = Mock["release"];

/** A backend whose results are decorated, with another key than that of `lock()`. */
function decorating(
  release: Release = async () => ({ ok: true }),
  onReleaseError?: OnReleaseError,
): Mock {
  const plain = fakeBackend({ release });
  return {
    ...plain,
    acquire: async () => decorateAcquireResult(plain, grant(LOCK_ID), OTHER, onReleaseError),
  };
}

afterEach(() => {
  vi.restoreAllMocks();
  vi.useRealTimers();
});

/** The backend as it is, and where telemetry stands before it, once and twice. */
const WRAPPED: [string, (backend: Mock) => Mock][] = [
  ["a mock", (backend) => backend],
  ["telemetry", (backend) => withTelemetry(backend, { onEvent: () => undefined })],
  [
    "telemetry over telemetry",
    (backend) =>
      withTelemetry(withTelemetry(backend, { onEvent: () => undefined }), {
        onEvent: () => undefined,
      }),
  ],
];

describe.each(WRAPPED)("lock() over results that name another key, on %s", (_, wrap) => {
  const failing = (thrown: unknown, onReleaseError?: OnReleaseError): Mock =>
    wrap(decorating(() => Promise.reject(thrown), onReleaseError));

  test("a failed release reaches onReleaseError with the key that lock() was given", async () => {
    const failure = new LockError("ServiceUnavailable", "down");
    const onReleaseError = vi.fn();
    expect(await lock(failing(failure), () => 42, { key: KEY, onReleaseError })).toBe(42);
    expect(onReleaseError.mock.calls).toEqual([[failure, CONTEXT]]);
  });

  test.each([
    ["text", "text"],
    [42, "42"],
    [undefined, "undefined"],
    [null, "null"],
    [Symbol("odd"), "Symbol(odd)"],
    [{ odd: true }, "an object was thrown that is no error"],
    [{ message: "in words" }, "in words"],
    [Object.create(null), "an object was thrown that is no error"],
  ])("so does something thrown that is no Error: %j", async (thrown: unknown, message) => {
    const onReleaseError = vi.fn<OnReleaseError>();
    await lock(failing(thrown), () => 1, { key: KEY, onReleaseError });
    const [error, context] = onReleaseError.mock.calls[0] ?? [];
    expect(error).toBeInstanceOf(Error);
    expect(error?.message).toBe(message);
    expect((error as { originalError?: unknown }).originalError).toBe(thrown);
    expect(context).toEqual(CONTEXT);
  });

  test("the function's own error is not masked", async () => {
    const onReleaseError = vi.fn();
    const [mine, failure] = [new Error("mine"), new Error("release")];
    const work = vi.fn(() => Promise.reject(mine));
    const locked = lock(failing(failure), work, { key: KEY, onReleaseError });
    expect(await rejection(locked)).toBe(mine);
    expect(onReleaseError.mock.calls).toEqual([[failure, CONTEXT]]);
  });

  test("the handler of the result hears of it where lock() has none, with the key of lock()", async () => {
    const ofResult = vi.fn();
    const failure = new Error("release");
    await lock(failing(failure, ofResult), () => 1, { key: KEY });
    expect(ofResult.mock.calls).toEqual([[failure, CONTEXT]]);
    const ofCall = vi.fn();
    await lock(failing(failure, ofResult), () => 1, { key: KEY, onReleaseError: ofCall });
    expect(ofResult).toHaveBeenCalledOnce();
    expect(ofCall).toHaveBeenCalledOnce();
  });

  test("a loss reaches onLost, the signal and throwIfLost with the key of lock()", async () => {
    const backend = wrap(decorating(async () => ({ ok: false })));
    const onLost = vi.fn();
    const error = await lockError(lock(backend, () => 1, { key: KEY, onLost, throwIfLost: true }));
    expect(error).toMatchObject({ code: "LockLost", context: { key: KEY, lockId: LOCK_ID } });
    expect(onLost.mock.calls).toEqual([[error, expect.objectContaining({ key: KEY })]]);
  });

  test("the function is told the key of lock()", async () => {
    const seen = await lock(wrap(decorating()), ({ key, lockId }) => [key, lockId], { key: KEY });
    expect(seen).toEqual([KEY, LOCK_ID]);
  });

  test("a lock that is granted to nobody any more is released under the key of lock()", async () => {
    const failure = new Error("release");
    const onReleaseError = vi.fn();
    const controller = new AbortController();
    const acquired = deferred<undefined>();
    const plain = decorating(() => Promise.reject(failure));
    const slow: Mock = {
      ...plain,
      acquire: async (opts) => {
        await acquired.promise;
        return await plain.acquire(opts);
      },
    };
    const { signal } = controller;
    const locked = rejection(lock(wrap(slow), () => 1, { key: KEY, signal, onReleaseError }));
    controller.abort();
    expect(await locked).toMatchObject({ code: "Aborted", context: { key: KEY } });
    acquired.resolve(undefined);
    await vi.waitFor(() => expect(onReleaseError).toHaveBeenCalledOnce());
    expect(onReleaseError.mock.calls[0]?.[1]).toEqual(CONTEXT);
  });

  test("a lock that is granted to nobody any more is extended no more, and nobody hears of its loss", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date", "performance"] });
    const acquired = deferred<undefined>();
    const extend = vi.fn(async () => ({ ok: false }) as const);
    const plain = fakeBackend({ extend });
    const slow = wrap({
      ...plain,
      acquire: async () => {
        await acquired.promise;
        return decorateAcquireResult(plain, grant(LOCK_ID), OTHER);
      },
    });
    const onLost = vi.fn();
    const controller = new AbortController();
    const config = { key: KEY, ttlMs: 5_000, autoExtend: true, signal: controller.signal, onLost };
    const locked = rejection(lock(slow, () => 1, config));
    controller.abort();
    await locked;
    acquired.resolve(undefined);
    await vi.advanceTimersByTimeAsync(20_000);
    expect(plain.released).toHaveLength(1);
    expect(extend).not.toHaveBeenCalled();
    expect(onLost).not.toHaveBeenCalled();
  });

  test("the same decorated result answers every call", async () => {
    const release = vi.fn<Release>(async () => ({ ok: false }));
    const plain = fakeBackend({ release });
    const decorated = decorateAcquireResult(plain, grant(LOCK_ID), OTHER);
    const backend = wrap({ ...plain, acquire: vi.fn(async () => decorated) });
    const keys: string[] = [];
    const onLost = (_error: Error, { key }: { key: string }): void => void keys.push(key);
    for (const key of ["a", "b"]) {
      const aborted = await lock(backend, ({ signal }) => signal.aborted, { key, onLost });
      expect(aborted).toBe(false);
    }
    expect(keys).toEqual(["a", "b"]);
    expect(release).toHaveBeenCalledTimes(2);
  });

  test("two at once over the same decorated result each have their own key", async () => {
    const plain = fakeBackend({ release: () => Promise.reject(new Error("down")) });
    const decorated = decorateAcquireResult(plain, grant(LOCK_ID), OTHER);
    const backend = wrap({ ...plain, acquire: async () => decorated });
    const keys: string[] = [];
    const onReleaseError: OnReleaseError = (_error, { key }) => void keys.push(key);
    const both = ["a", "b"].map((key) => lock(backend, settle, { key, onReleaseError }));
    await Promise.all(both);
    expect(keys.sort()).toEqual(["a", "b"]);
  });
});

describe("a wrapper of one's own around a backend of this package", () => {
  const prefixing = (inner: ReturnType<typeof createTestBackend>) => ({
    ...inner,
    acquire: ({ key, ttlMs }: { key: string; ttlMs: number }) =>
      inner.acquire({ key: `tenant:${key}`, ttlMs }),
  });

  test("decorates once more, and its key is that of callbacks", async () => {
    const failure = new LockError("AuthFailed", "down");
    const inners = [createTestBackend(), decorating(() => Promise.reject(failure))] as Mock[];
    for (const inner of inners) {
      if ("faults" in inner) (inner as unknown as TestBackend).faults.failNext("release", failure);
      const onReleaseError = vi.fn();
      const acquire: Mock["acquire"] = async ({ key, ttlMs }) =>
        decorateAcquireResult(
          inner,
          await inner.acquire({ key: `tenant:${key}`, ttlMs }),
          key,
          onReleaseError,
        );
      {
        await using held = await acquire({ key: KEY, ttlMs: 5_000 });
        expect(held.ok).toBe(true);
      }
      expect(onReleaseError.mock.calls).toMatchObject([[failure, { key: KEY }]]);
    }
  });

  test("has the key of lock() in callbacks, and its own in the store", async () => {
    const inner = createTestBackend();
    const wrapper = prefixing(inner);
    const onReleaseError = vi.fn();
    const work = async (): Promise<boolean[]> =>
      await Promise.all([KEY, `tenant:${KEY}`].map((key) => inner.isLocked({ key })));
    inner.faults.failNext("release", "AuthFailed");
    const config = { key: KEY, onReleaseError };
    expect(await lock(wrapper as never, work, config)).toEqual([false, true]);
    expect(onReleaseError.mock.calls[0]?.[1]).toMatchObject({ key: KEY });
  });
});

describe("lead() over results that name another key", () => {
  test.each([
    ["what it can read", new Error("mine")],
    ["what nobody can read", Object.create(null) as unknown],
    [
      "what throws when it is read",
      new Proxy(
        {},
        {
          get: () => {
            throw new Error("unreadable");
          },
        },
      ),
    ],
  ])("has its own key, and goes on after the function has thrown %s", async (_, thrown) => {
    const stop = new AbortController();
    const told: [unknown, string][] = [];
    const keys: string[] = [];
    await lead(
      decorating(async () => ({ ok: false })),
      KEY,
      async ({ key }) => {
        keys.push(key);
        if (keys.length > 1) stop.abort();
        await Promise.resolve();
        throw thrown;
      },
      {
        signal: stop.signal,
        onError: (error, { key }) => told.push([error, key]),
        onLost: (_error, { key }) => keys.push(key),
      },
    );
    expect(new Set(keys)).toEqual(new Set([KEY]));
    // The matchers would read it.
    expect(told[0]?.[0] === thrown && told[0]?.[1] === KEY).toBe(true);
  });
});

describe("backends of few methods", () => {
  test("two methods are enough for lock(), and each gets what it always got", async () => {
    const acquire = vi.fn(async () => grant(LOCK_ID));
    const release = vi.fn(async () => ({ ok: true }));
    const backend = { acquire, release } as never;
    expect(await lock(backend, () => 7, { key: KEY, ttlMs: 5_000 })).toBe(7);
    expect(acquire).toHaveBeenCalledWith({ key: KEY, ttlMs: 5_000, signal: undefined });
    expect(release.mock.calls).toEqual([[{ lockId: LOCK_ID }]]);
  });

  test("methods may be a class's own, may answer at once, and may answer nothing", async () => {
    class Mine {
      readonly capabilities = { supportsFencing: true, timeAuthority: "client" } as const;
      readonly #held = new Set<string>();
      acquire({ key }: { key: string }) {
        this.#held.add(key);
        return grant(LOCK_ID);
      }
      release(): void {
        this.#held.clear();
      }
      get size(): number {
        return this.#held.size;
      }
    }
    const mine = new Mine();
    for (const backend of [mine, withTelemetry(mine as never, { onEvent: () => undefined })]) {
      expect(await lock(backend as never, () => mine.size, { key: KEY })).toBe(1);
      expect(mine.size).toBe(0);
    }
  });

  test("a frozen result, of whatever end and id, is a lock", async () => {
    for (const expiresAtMs of [0, 1, Date.now() - 1, Number.MAX_SAFE_INTEGER]) {
      const result = Object.freeze({ ...grant("a, b"), expiresAtMs });
      const release = vi.fn<Release>(async () => ({ ok: true }));
      const backend = fakeBackend({ acquire: async () => result, release });
      const onLost = vi.fn();
      expect(await lock(backend, () => 1, { key: KEY, onLost, throwIfLost: true })).toBe(1);
      expect(release.mock.calls).toEqual([[{ lockId: "a, b" }]]);
      expect(onLost).not.toHaveBeenCalled();
    }
  });

  test("a mock of a handle whose methods are its own is passed on as it is", async () => {
    const handle = {
      ...grant(LOCK_ID),
      release: vi.fn(),
      extend: vi.fn(),
      [Symbol.asyncDispose]: vi.fn(async () => undefined),
    };
    const backend = fakeBackend({ acquire: async () => handle });
    {
      await using held = await acquireHandle(backend, { key: KEY, ttlMs: 1_000 });
      expect(held).toBe(handle);
    }
    expect(handle[Symbol.asyncDispose]).toHaveBeenCalledOnce();
    expect(backend.released).toEqual([]);
  });
});

describe("what is thrown", () => {
  test("an error of another realm is one: Jest's tests have a realm of their own", async () => {
    const foreign = runInNewContext('new TypeError("of another realm")') as Error;
    expect(foreign).not.toBeInstanceOf(Error);
    const onReleaseError = vi.fn();
    const backend = decorating(() => Promise.reject(foreign));
    await lock(backend, () => 1, { key: KEY, onReleaseError });
    expect(onReleaseError.mock.calls[0]?.[0]).toBe(foreign);
    const failing = fakeBackend({ acquire: () => Promise.reject(foreign) });
    expect(await lockError(lock(failing, () => 1, { key: KEY }))).toMatchObject({
      code: "Internal",
      message: "of another realm",
      cause: foreign,
    });
  });

  test.each([
    ["text", "text"],
    [42, "42"],
    [null, "null"],
    [Object.create(null), "an object was thrown that is no error"],
    [
      {
        get message() {
          throw new Error("unreadable");
        },
      },
      "an object was thrown that is no error",
    ],
    [() => 1, "a function was thrown that is no error"],
  ])(
    "what acquire() throws becomes Internal, and stays the cause",
    async (thrown: unknown, message) => {
      const backend = fakeBackend({ acquire: () => Promise.reject(thrown) });
      const error = await lockError(lock(backend, () => 1, { key: KEY }));
      expect(error).toMatchObject({ code: "Internal", message });
      expect(error.context).toEqual({ key: KEY, cause: thrown });
    },
  );

  test("nobody hears of a release that says nothing but that the lock is gone", async () => {
    const log = vi.spyOn(console, "error").mockImplementation(() => undefined);
    const onReleaseError = vi.fn();
    const release: Release = async () =>
      Object.defineProperty({ ok: false as const }, FAILURE_REASON, {
        value: { reason: "expired" },
      });
    const onLost = (): undefined => undefined;
    await lock(decorating(release), () => 1, { key: KEY, onReleaseError, onLost });
    await createDisposableHandle(fakeBackend({ release }), grant(LOCK_ID) as never, KEY)[
      Symbol.asyncDispose
    ]();
    expect(onReleaseError).not.toHaveBeenCalled();
    expect(log.mock.calls.flat()).not.toContain("[SyncGuard] Lock disposal failed:");
  });
});

describe("fake timers", () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date"] });
  });

  test("that leave performance.now alone are enough for waiting and disposal", async () => {
    vi.spyOn(Math, "random").mockReturnValue(0);
    let attempts = 0;
    const backend = fakeBackend({
      acquire: async () => (++attempts < 3 ? { ok: false, reason: "locked" } : grant(LOCK_ID)),
      release: () => new Promise(() => undefined),
    });
    const done = vi.fn();
    const locked = lock(backend, () => 1, { key: KEY, disposeTimeoutMs: 500 }).then(done);
    await vi.advanceTimersByTimeAsync(50 + 100);
    expect(attempts).toBe(3);
    await vi.advanceTimersByTimeAsync(499);
    expect(done).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(1);
    await locked;
    expect(done).toHaveBeenCalledWith(1);
    expect(vi.getTimerCount()).toBe(0);
  });

  test("leave nothing behind when a signal ends the wait", async () => {
    const backend = fakeBackend({ acquire: async () => ({ ok: false, reason: "locked" }) });
    const controller = new AbortController();
    const bound = createAutoLock(backend);
    const locked = rejection(bound(() => 1, { key: KEY, signal: controller.signal }));
    await vi.advanceTimersByTimeAsync(10);
    controller.abort();
    expect(await locked).toMatchObject({
      code: "Aborted",
      message: "Operation cancelled by user signal",
    });
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe("telemetry over results that name another key", () => {
  test("tells of the key that was asked for, with each operation of the handle", async () => {
    const events: LockEvent[] = [];
    const onEvent = (event: LockEvent): void => void events.push(event);
    const wrapped = withTelemetry(decorating(), { onEvent });
    {
      await using held = await wrapped.acquire({ key: KEY, ttlMs: 1_000 });
      expect(held).toMatchObject({ ok: true, lockId: LOCK_ID });
    }
    await settle();
    expect(events).toMatchObject([
      { type: "acquire", result: "ok", keyHash: hashKey(KEY) },
      { type: "release", result: "ok", lockIdHash: hashKey(LOCK_ID) },
    ]);
  });

  test("a failed disposal of its handle names the key that was asked for", async () => {
    const [ofResult, failure] = [vi.fn(), new Error("down")];
    const backend = decorating(() => Promise.reject(failure), ofResult);
    const wrapped = withTelemetry(backend, { onEvent: () => undefined });
    const held = await wrapped.acquire({ key: KEY, ttlMs: 1_000 });
    await held[Symbol.asyncDispose]();
    expect(ofResult.mock.calls).toEqual([[failure, CONTEXT]]);
  });
});
