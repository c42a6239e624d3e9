/** Locks of users' own backends, which JavaScript's timers extend. */

import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { inspect } from "node:util";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import {
  type AcquireResult,
  createDisposableHandle,
  decorateAcquireResult,
  lock,
  LockError,
  type LockConfig,
  type LockEvent,
  withTelemetry,
} from "syncguard/common";
import { createSqliteBackend } from "syncguard/sqlite";
import { createTestBackend } from "syncguard/testing";
import { lockError } from "../support/errors";
import { deferred, fakeBackend, type FakeCapabilities } from "../support/fake-backend";
import { countingController } from "../support/signals";

const KEY = "some:key";
const CONFIG = { key: KEY, ttlMs: 3_000, autoExtend: true } as const;

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const pass = async (ms: number): Promise<void> => {
  await vi.advanceTimersByTimeAsync(ms);
};

/** Holds a lock of `backend` until `done` is called. */
function hold(backend: ReturnType<typeof fakeBackend>, config: LockConfig = CONFIG) {
  const [started, done] = [
    deferred<{ signal: AbortSignal; expiresAtMs: number }>(),
    deferred<undefined>(),
  ];
  const result = lock(
    backend,
    async (handle) => {
      started.resolve(handle);
      await done.promise;
    },
    config,
  );
  return { handle: started.promise, done: () => done.resolve(undefined), result };
}

describe("autoExtend on a backend of one's own", () => {
  test("extends at a third of the TTL, until the work is done", async () => {
    const extend = vi.fn(async () => ({ ok: true, expiresAtMs: Date.now() + 3_000 }) as const);
    const backend = fakeBackend({ extend });
    const { handle, done, result } = hold(backend);
    const { signal } = await handle;
    const start = (await handle).expiresAtMs;
    await pass(3_500);
    expect(extend).toHaveBeenCalledTimes(3);
    expect((extend.mock.calls as unknown[][])[0]?.[0]).toMatchObject({ ttlMs: 3_000 });
    expect((await handle).expiresAtMs).toBe(start + 3_000);
    done();
    await result;
    await pass(60_000);
    expect(extend).toHaveBeenCalledTimes(3);
    expect(signal.aborted).toBe(false);
    expect(vi.getTimerCount()).toBe(0);
    expect(backend.acquired).toEqual([{ key: KEY, ttlMs: 3_000, signal: undefined }]);
  });

  test("tries again, and gives up when the lock ends", async () => {
    const failure = new Error("no connection");
    const extend = vi.fn(() => Promise.reject(failure));
    const { handle, done, result } = hold(fakeBackend({ extend }));
    const { signal } = await handle;
    await pass(2_999);
    expect(extend.mock.calls.length).toBeGreaterThan(3);
    expect(signal.aborted).toBe(false);
    await pass(1);
    expect(signal.reason).toBeInstanceOf(LockError);
    expect(signal.reason).toMatchObject({
      code: "LockLost",
      message: "the lock was lost: it could not be extended before its end: no connection",
      cause: failure,
    });
    const calls = extend.mock.calls.length;
    await pass(60_000);
    expect(extend).toHaveBeenCalledTimes(calls);
    done();
    await result;
  });

  test("goes on after a failure that passes", async () => {
    const extend = vi.fn(async () => ({ ok: true, expiresAtMs: Date.now() + 3_000 }) as const);
    const { handle, done, result } = hold(fakeBackend({ extend }));
    const { signal } = await handle;
    extend.mockRejectedValueOnce(new Error("once")).mockRejectedValueOnce(new Error("twice"));
    await pass(20_000);
    expect(signal.aborted).toBe(false);
    done();
    await result;
  });

  test("tells at once that the lock is gone", async () => {
    const { handle, done, result } = hold(fakeBackend({ extend: async () => ({ ok: false }) }));
    const { signal } = await handle;
    await pass(1_000);
    expect(signal.reason).toMatchObject({
      code: "LockLost",
      message: "the lock was lost: the store no longer has it",
    });
    done();
    await result;
  });

  test("gives up an extension that hangs, and sends none after the end", async () => {
    let signal: AbortSignal | undefined;
    const extend = vi.fn((opts: { signal?: AbortSignal | undefined }) => {
      signal = opts.signal;
      return new Promise<never>(() => undefined);
    });
    const { handle, done, result } = hold(fakeBackend({ extend }));
    const held = await handle;
    expect(held.signal.aborted).toBe(false);
    await pass(3_000);
    expect(held.signal.aborted).toBe(true);
    expect(signal?.aborted).toBe(true);
    done();
    await result;
    expect(extend).toHaveBeenCalledTimes(1);
  });

  test("does not extend after a pause past the end", async () => {
    const extend = vi.fn(async () => ({ ok: true, expiresAtMs: 1 }) as const);
    const { handle, done, result } = hold(fakeBackend({ extend }));
    const { signal } = await handle;
    // As when the process was stopped: the timers find that it is late.
    const now = vi.spyOn(performance, "now");
    const late = performance.now() + 4_000;
    now.mockImplementation(() => late);
    await pass(1_000);
    now.mockRestore();
    expect(signal.reason).toMatchObject({ code: "LockLost" });
    expect(extend).not.toHaveBeenCalled();
    done();
    await result;
  });

  test("ends the hold at maxMs", async () => {
    const ttls: number[] = [];
    const extend = vi.fn(async ({ ttlMs }: { ttlMs: number }) => {
      ttls.push(ttlMs);
      return { ok: true, expiresAtMs: Date.now() + ttlMs } as const;
    });
    const { handle, done, result } = hold(fakeBackend({ extend }), {
      ...CONFIG,
      autoExtend: { maxMs: 4_500 },
    });
    const { signal } = await handle;
    await pass(4_499);
    expect(signal.aborted).toBe(false);
    await pass(1);
    expect(signal.reason).toMatchObject({ code: "LockLost" });
    expect(ttls).toEqual([3_000, 2_500]);
    done();
    await result;
  });

  test("does not shorten what the holder itself has extended", async () => {
    const extend = vi.fn(
      async ({ ttlMs }: { ttlMs: number }) =>
        ({ ok: true, expiresAtMs: Date.now() + ttlMs }) as const,
    );
    const done = deferred<undefined>();
    const result = lock(
      fakeBackend({ extend }),
      async (handle) => {
        await handle.extend(60_000);
        await done.promise;
      },
      CONFIG,
    );
    await pass(57_000);
    expect(extend).toHaveBeenCalledTimes(1);
    await pass(1_500);
    expect(extend).toHaveBeenCalledTimes(2);
    done.resolve(undefined);
    await result;
  });

  test("works through telemetry, which counts heartbeats and does not report them", async () => {
    const events: LockEvent[] = [];
    const backend = fakeBackend();
    const observed = withTelemetry(backend, { onEvent: (event) => events.push(event) });
    const done = deferred<undefined>();
    const result = lock(observed, () => done.promise, CONFIG);
    await pass(2_500);
    done.resolve(undefined);
    await result;
    await pass(0);
    expect(backend.acquired).toEqual([{ key: KEY, ttlMs: 3_000, signal: undefined }]);
    expect(events.map(({ type }) => type)).toEqual(["acquire", "release"]);
    expect(events[1]).toMatchObject({ extensions: 2, heldMs: 2_500 });
  });
});

describe("the signal of a callback's handle", () => {
  test("is aborted with the caller's, for its reason", async () => {
    const { controller, signal: user, listeners } = countingController();
    const { handle, done, result } = hold(fakeBackend(), { key: KEY, signal: user });
    const { signal } = await handle;
    expect(signal).not.toBe(user);
    const why = new Error("why");
    controller.abort(why);
    expect(signal.reason).toBe(why);
    done();
    await result;
    expect(listeners()).toBe(0);
  });

  test("listens to the caller's for no longer than the work takes", async () => {
    const { signal: user, listeners } = countingController();
    const { handle, done, result } = hold(fakeBackend(), { key: KEY, signal: user });
    expect((await handle).signal.aborted).toBe(false);
    expect(listeners()).toBe(1);
    done();
    await result;
    expect(listeners()).toBe(0);
    expect(vi.getTimerCount()).toBe(0);
  });

  test("is aborted at the end of a lock, and not after its release", async () => {
    const { handle, done, result } = hold(fakeBackend(), { key: KEY, ttlMs: 1_000 });
    const { signal } = await handle;
    await pass(1_000);
    expect(signal.reason).toMatchObject({ code: "LockLost", context: { key: KEY } });
    done();
    await result;
    const other = hold(fakeBackend(), { key: KEY, ttlMs: 1_000 });
    const handle2 = await other.handle;
    other.done();
    await other.result;
    const late = handle2.signal;
    await pass(5_000);
    expect(late.aborted).toBe(false);
    expect(vi.getTimerCount()).toBe(0);
  });

  test("costs no timer while nobody asks for it", async () => {
    const { handle, done, result } = hold(fakeBackend(), { key: KEY });
    await handle;
    expect(vi.getTimerCount()).toBe(0);
    done();
    await result;
  });
});

describe("the signal of a handle", () => {
  const granted = (): AcquireResult<FakeCapabilities> & { ok: true } => ({
    ok: true,
    lockId: "lock-id",
    expiresAtMs: Date.now() + 1_000,
    fence: "000000000000001",
  });

  test("is its own member on backends of this package, as its key is, and is kept when it is spread", async () => {
    const backend = createTestBackend();
    const acquired = await backend.acquire({ key: "a", ttlMs: 5_000 });
    if (!acquired.ok) throw new Error("expected the lock to be free");
    const observed = withTelemetry(backend, { onEvent: () => undefined });
    for (const [key, held] of [
      ["a", acquired],
      ["b", await backend.lock("b", { ttlMs: 5_000 })],
      ["c", await backend.lock("c", { ttlMs: 5_000, disposeTimeoutMs: 5 })],
      ["d", await observed.lock("d", { ttlMs: 5_000 })],
    ] as const) {
      expect(Object.keys(held).sort()).toEqual(
        [
          ...["ok", "lockId", "expiresAtMs", "fence", "key", "signal", "release", "extend"],
          "assertHeld",
        ].sort(),
      );
      // Nobody has asked for it.
      expect(vi.getTimerCount()).toBe(0);
      const copy = { ...held, extra: 1 };
      expect(copy.key).toBe(key);
      expect(copy.signal).toBe(held.signal);
      expect(Object.assign({}, held).signal.aborted).toBe(false);
      // What is made of a copy has a signal of its own.
      const again = decorateAcquireResult(backend, copy, key);
      if (!again.ok) throw new Error("expected a lock");
      expect(again.signal?.aborted).toBe(false);
      await held.release();
      await again.release();
      expect(vi.getTimerCount()).toBe(0);
    }
  });

  test("is not among the members of results of others", () => {
    const held = createDisposableHandle(fakeBackend(), granted(), KEY);
    const members = ["ok", "lockId", "expiresAtMs", "fence", "release", "extend"];
    expect(Reflect.ownKeys(held)).toEqual([...members, Symbol.asyncDispose]);
    expect(vi.getTimerCount()).toBe(0);
    expect(held.signal).toBe(held.signal);
    expect(JSON.parse(JSON.stringify(held))).toEqual(granted());
    const { release, extend, [Symbol.asyncDispose]: dispose } = held;
    const plain = { ...granted(), release, extend, [Symbol.asyncDispose]: dispose };
    expect(held).toStrictEqual(plain);
    expect(inspect(held)).toBe(inspect(plain));
  });

  test("follows extensions, made before or after it was asked for", async () => {
    const held = createDisposableHandle(
      fakeBackend({
        extend: async ({ ttlMs }) => ({ ok: true, expiresAtMs: Date.now() + ttlMs }),
      }),
      granted(),
      KEY,
    );
    await held.extend(2_000);
    const { signal } = held;
    await pass(1_500);
    await held.extend(2_000);
    await pass(1_999);
    expect(signal?.aborted).toBe(false);
    await pass(1);
    expect(signal?.reason).toMatchObject({ code: "LockLost" });
  });

  test("tells the end to a process that was stopped, also before its timer has run", async () => {
    const [looking, releasing] = ["a", "b"].map((key) =>
      createDisposableHandle(fakeBackend(), granted(), key),
    );
    const signal = releasing?.signal;
    expect(looking?.signal?.aborted).toBe(false);
    vi.spyOn(performance, "now").mockReturnValue(performance.now() + 5_000);
    expect(looking?.signal?.reason).toMatchObject({ code: "LockLost" });
    await releasing?.release();
    expect(signal?.reason).toMatchObject({ code: "LockLost" });
  });

  test("works under fake timers on a backend of this package", async () => {
    const backend = createSqliteBackend(":memory:");
    const held = await backend.lock(KEY, { ttlMs: 60_000 });
    const { signal } = held;
    await pass(60_000);
    expect(signal.reason).toMatchObject({ code: "LockLost" });
    vi.useRealTimers();
    await backend.close();
  });

  test("an option of a wrong type is refused for any backend", async () => {
    const backend = fakeBackend();
    const error = await lockError(
      lock(backend, () => 1, { key: KEY, autoExtend: { everyMs: 30_000 } }),
    );
    expect(error.message).toBe("autoExtend.everyMs must be less than ttlMs");
    expect(backend.acquired).toEqual([]);
  });
});

test("on a backend that was closed nothing is extended, and locks are lost at their ends", async () => {
  vi.useRealTimers();
  const backend = createSqliteBackend(":memory:");
  const { signal } = await backend.lock(KEY, { ttlMs: 300, autoExtend: true });
  const lost = once(signal, "abort");
  await backend.close();
  expect(signal.aborted).toBe(false);
  await lost;
  expect(signal.reason).toMatchObject({ code: "LockLost" });
  expect((signal.reason as LockError).message).toContain("the backend is closed");
});

test("a lock that extends itself holds on while JavaScript is busy", async () => {
  vi.useRealTimers();
  const backend = createSqliteBackend(":memory:");
  const pending = backend.lock(KEY, { ttlMs: 1_500, autoExtend: true });
  // The lock is granted meanwhile.
  const end = performance.now() + 3_000;
  while (performance.now() < end);
  const held = await pending;
  await sleep(50);
  expect(held.signal.aborted).toBe(false);
  expect(held.expiresAtMs).toBeGreaterThan(Date.now());
  expect(await held.release()).toEqual({ ok: true });
  await backend.close();
});

test("a release waits no longer than until its lock ends for an extension that hangs", async () => {
  const seen: unknown[] = [];
  const backend = fakeBackend({ extend: () => new Promise(() => undefined) });
  const onLost = ({ message }: LockError): unknown => seen.push(message);
  const { handle, done, result } = hold(backend, { ...CONFIG, minHoldMs: 2_000, onLost });
  await handle;
  await pass(1_000);
  done();
  await pass(1_999);
  expect(backend.released).toEqual([]);
  await pass(1);
  await result;
  expect(backend.released).toHaveLength(1);
  expect(seen).toEqual(["the lock was lost: its end passed before it could be extended"]);
});
