import { createRequire } from "node:module";
import { describe, expect, test, vi } from "vitest";
import {
  acquireHandle,
  FAILURE_REASON,
  getByKey,
  getByKeyRaw,
  getByIdRaw,
  hashKey,
  lock,
  type LockEvent,
  LockError,
  type ReleaseResult,
  owns,
  type TelemetryOptions,
  withTelemetry,
} from "syncguard/common";
import { createTestBackend } from "syncguard/testing";
import { rejection } from "../support/errors";
import { fakeBackend, grant, LOCKED, scripted } from "../support/fake-backend";
import { settle } from "../support/until";

const KEY = "some:key";

function observed(options: Partial<TelemetryOptions> = {}, backend = fakeBackend()) {
  const events: LockEvent[] = [];
  const onEvent = (event: LockEvent): void => {
    events.push(event);
  };
  return { backend, events, wrapped: withTelemetry(backend, { onEvent, ...options }) };
}

/** How backends tell telemetry, and nobody else, why they did nothing. */
function failed(reason: "expired" | "not-found"): ReleaseResult & { ok: false } {
  return Object.defineProperty({ ok: false }, FAILURE_REASON, { value: { reason } });
}

describe("waiting", () => {
  test("is told with each attempt of lock(), and with no other", async () => {
    vi.useFakeTimers();
    try {
      const { events, wrapped } = observed({}, scripted(LOCKED, LOCKED, grant()));
      const acquisition = { jitter: "none" } as const;
      const held = lock(wrapped, () => 1, { key: KEY, acquisition });
      await vi.runAllTimersAsync();
      await held;
      await wrapped.acquire({ key: KEY, ttlMs: 5 });
      await settle();
      const acquisitions = events.filter(({ type }) => type === "acquire");
      expect(acquisitions).toEqual([
        ...[0, 100, 300].map((waitMs, index) => ({
          type: "acquire",
          result: index < 2 ? "fail" : "ok",
          keyHash: hashKey(KEY),
          ...(index < 2 && { reason: "locked" }),
          waitMs,
          attempts: index + 1,
          wakeups: 0,
        })),
        { type: "acquire", result: "ok", keyHash: hashKey(KEY) },
      ]);
    } finally {
      vi.useRealTimers();
    }
  });

  test("is told of once where the store waits, with its wake-ups", async () => {
    const events: LockEvent[] = [];
    const wrapped = withTelemetry(createTestBackend(), { onEvent: (event) => events.push(event) });
    const first = await wrapped.lock(KEY);
    const acquisition = { retryDelayMs: 60_000, timeoutMs: 60_000 };
    const second = lock(wrapped, () => 1, { key: KEY, acquisition });
    await settle();
    await first.release();
    await second;
    await settle();
    const acquired = events.filter(({ type }) => type === "acquire");
    expect(acquired).toMatchObject([
      { result: "ok", attempts: 1, wakeups: 0 },
      // The watch begins with one: what was told before was not heard.
      { result: "ok", wakeups: 2 },
    ]);
  });
});

describe("withTelemetry over a backend of one's own", () => {
  test("works with every helper", async () => {
    const { backend, events, wrapped } = observed();
    {
      await using held = await acquireHandle(wrapped, { key: KEY, ttlMs: 5_000 });
      if (!held.ok) throw new Error("expected the lock to be free");
      expect(await owns(wrapped, held.lockId)).toBe(true);
      expect(await getByKey(wrapped, KEY)).toMatchObject({ keyHash: hashKey(KEY) });
      expect(await getByKeyRaw(wrapped, KEY)).toMatchObject({
        key: KEY,
        lockId: "[backend does not provide raw lockId]",
      });
      expect(await getByIdRaw(wrapped, held.lockId)).toMatchObject({
        key: "[backend does not provide raw key]",
        lockId: held.lockId,
      });
    }
    expect(await lock(wrapped, ({ fence }) => fence, { key: KEY })).toBe("000000000000002");
    expect(backend.held.size).toBe(0);
    expect(events.map(({ type }) => type)).toEqual([
      "acquire",
      ...["lookup", "lookup", "lookup", "lookup"],
      "release",
      "acquire",
      "release",
    ]);
    expect(wrapped).not.toHaveProperty("lock");
    expect(wrapped).not.toHaveProperty("forceRelease");
  });

  test("reads the reason that a backend attached", async () => {
    const { events, wrapped } = observed(
      {},
      fakeBackend({
        release: async () => failed("expired"),
        extend: async () => failed("not-found"),
      }),
    );
    const released = await wrapped.release({ lockId: "l" });
    expect(released).toEqual({ ok: false });
    expect(Reflect.get(released, FAILURE_REASON)).toEqual({ reason: "expired" });
    await wrapped.extend({ lockId: "l", ttlMs: 1 });
    expect(events.map(({ reason }) => reason)).toEqual(["expired", "not-found"]);
  });

  test("an acquisition has a key, and never a hash of its lock id", async () => {
    const { events, wrapped } = observed();
    const raw = observed({ includeRaw: true }, fakeBackend());
    const keyHash = hashKey(KEY);
    await wrapped.acquire({ key: KEY, ttlMs: 5_000 });
    await wrapped.acquire({ key: KEY, ttlMs: 5_000 });
    expect(events).toEqual([
      { type: "acquire", result: "ok", keyHash },
      { type: "acquire", result: "fail", reason: "locked", keyHash },
    ]);
    const held = await raw.wrapped.acquire({ key: KEY, ttlMs: 5_000 });
    const lockId = held.ok && held.lockId;
    await raw.wrapped.acquire({ key: KEY, ttlMs: 5_000 });
    expect(raw.events).toEqual([
      { type: "acquire", result: "ok", keyHash, key: KEY, lockId },
      { type: "acquire", result: "fail", reason: "locked", keyHash, key: KEY },
    ]);
  });

  test("gives no reason where there is none", async () => {
    const { events, wrapped } = observed({}, fakeBackend({ release: async () => ({ ok: false }) }));
    await wrapped.release({ lockId: "l" });
    expect(events).toEqual([{ type: "release", result: "fail", lockIdHash: hashKey("l") }]);
  });

  test("rethrows what the backend throws", async () => {
    const failure = new LockError("AuthFailed");
    const fail = () => Promise.reject(failure);
    const { events, wrapped } = observed(
      {},
      fakeBackend({ acquire: fail, release: fail, extend: fail, isLocked: fail, lookup: fail }),
    );
    for (const operation of [
      () => wrapped.acquire({ key: KEY, ttlMs: 1 }),
      () => wrapped.release({ lockId: "l" }),
      () => wrapped.extend({ lockId: "l", ttlMs: 1 }),
      () => wrapped.isLocked({ key: KEY }),
      () => wrapped.lookup({ key: KEY }),
    ]) {
      expect(await rejection(operation())).toBe(failure);
    }
    expect(events.map(({ type, result }) => `${type} ${result}`)).toEqual([
      "acquire fail",
      "release fail",
      "extend fail",
      "isLocked fail",
      "lookup fail",
    ]);
  });

  test("keeps how handles end", async () => {
    const failure = new Error("down");
    const onReleaseError = vi.fn();
    const plain = fakeBackend({ release: () => Promise.reject(failure) });
    const { decorateAcquireResult } = await import("syncguard/common");
    const decorating = {
      ...plain,
      acquire: async (opts: { key: string; ttlMs: number }) =>
        decorateAcquireResult(plain, await plain.acquire(opts), opts.key, onReleaseError),
    };
    const wrapped = withTelemetry(decorating, { onEvent: () => undefined });
    const handle = await acquireHandle(wrapped, { key: KEY, ttlMs: 5_000 });
    await handle[Symbol.asyncDispose]();
    expect(onReleaseError).toHaveBeenCalledWith(failure, expect.objectContaining({ key: KEY }));
  });
});

describe("events", () => {
  test("never affect the operation", async () => {
    const throwing = {
      onEvent: () => {
        throw new Error("listener");
      },
    };
    const rejecting = { onEvent: (): unknown => Promise.reject(new Error("listener")) };
    const thenable = {
      onEvent: (): unknown => ({
        then: (_: unknown, reject: (error: unknown) => void) => {
          reject(new Error("listener"));
        },
      }),
    };
    for (const options of [throwing, rejecting, thenable]) {
      const { wrapped } = observed(options);
      expect((await wrapped.acquire({ key: KEY, ttlMs: 5_000 })).ok).toBe(true);
      expect(await wrapped.isLocked({ key: KEY })).toBe(true);
    }
    await settle();
  });

  test("are not awaited", async () => {
    const endless: unknown = () => new Promise(() => undefined);
    const { wrapped } = observed({ onEvent: endless as () => void });
    expect((await wrapped.acquire({ key: KEY, ttlMs: 5_000 })).ok).toBe(true);
  });

  test("are there once the operation has ended", async () => {
    const { events, wrapped } = observed();
    await wrapped.isLocked({ key: KEY });
    expect(events).toHaveLength(1);
  });

  test("are there although a test has replaced queueMicrotask and the timers", async () => {
    vi.useFakeTimers({ toFake: ["queueMicrotask", "setImmediate", "setTimeout"] });
    try {
      const { events, wrapped } = observed();
      await wrapped.isLocked({ key: KEY });
      expect(events).toHaveLength(1);
    } finally {
      vi.useRealTimers();
    }
  });

  test("carry identifiers as the predicate says", async () => {
    const seen: LockEvent[] = [];
    const { events, wrapped } = observed({
      includeRaw: (event) => {
        seen.push({ ...event });
        return event.type === "acquire";
      },
    });
    const result = await wrapped.acquire({ key: KEY, ttlMs: 5_000 });
    if (!result.ok) throw new Error("expected the lock to be free");
    await wrapped.release({ lockId: result.lockId });
    expect(events[0]).toMatchObject({ key: KEY, lockId: result.lockId });
    expect(events[1]).not.toHaveProperty("lockId");
    // The predicate itself sees hashes alone.
    for (const event of seen) {
      expect(event).not.toHaveProperty("key");
      expect(event).not.toHaveProperty("lockId");
    }
  });

  test.each([
    [
      "throws",
      () => {
        throw new Error("predicate");
      },
    ],
    ["gives a promise", () => Promise.resolve(true)],
    ["gives a truthy value", () => "yes"],
  ])("carry no identifiers if the predicate %s", async (_, predicate) => {
    const { events, wrapped } = observed({ includeRaw: predicate as unknown as () => boolean });
    await wrapped.isLocked({ key: KEY });
    expect(events).toEqual([{ type: "isLocked", result: "fail", keyHash: hashKey(KEY) }]);
  });

  test("cost no hashes if nobody listens", async () => {
    const values = createRequire(import.meta.url)("../../dist/values/values.js") as {
      hashKey: (value: string) => string;
    };
    const hash = vi.spyOn(values, "hashKey");
    const { wrapped } = observed({ onEvent: undefined as never });
    await wrapped.acquire({ key: KEY, ttlMs: 5_000 });
    await wrapped.isLocked({ key: KEY });
    await settle();
    expect(hash).not.toHaveBeenCalled();
    await observed().wrapped.isLocked({ key: KEY });
    expect(hash).toHaveBeenCalledTimes(1);
  });

  test("come even for identifiers of a wrong type", async () => {
    const { events, wrapped } = observed(
      {},
      fakeBackend({ isLocked: () => Promise.reject(new LockError("InvalidArgument")) }),
    );
    await rejection(wrapped.isLocked({ key: 7 as never }));
    expect(events).toEqual([{ type: "isLocked", result: "fail" }]);
  });

  test.each([null, 5, { onEvent: "log" }])("need options that make sense: %j", (options) => {
    expect(() => withTelemetry(fakeBackend(), options as never)).toThrow(LockError);
  });
});
