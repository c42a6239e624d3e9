import { createRequire } from "node:module";
import { describe, expect, test, vi } from "vitest";
import {
  decorateAcquireResult,
  generateLockId,
  hashKey,
  lock,
  type SyncGuardBackend,
  withTelemetry,
} from "syncguard";
import { createSqliteBackend } from "syncguard/sqlite";
import { lockError } from "../support/errors";
import { deferred } from "../support/fake-backend";
import { until } from "../support/until";

const { createBackend } = createRequire(import.meta.url)(
  "../../dist/backend/native-backend.js",
) as {
  createBackend: (store: unknown, options: object) => SyncGuardBackend;
};

type Wait = { policy: { timeoutMs: number } };

/** A store that grants everything, and how long each was going to wait. */
function storeDouble(fenceNearLimit = false) {
  const limits: (number | undefined)[] = [];
  const released: string[] = [];
  const grant = {
    lockId: generateLockId(),
    fence: "090000000000001",
    expiresAtMs: 5,
    fenceNearLimit,
  };
  const store = {
    capabilities: { backend: "double", supportsFencing: true, timeAuthority: "server" },
    acquire: vi.fn(
      async (
        _key: string,
        _ttlMs: number,
        _owner?: string,
        _signal?: AbortSignal,
        wait?: Wait,
      ): Promise<typeof grant | null> => {
        limits.push(wait?.policy.timeoutMs);
        return grant;
      },
    ),
    refuseWaiters: () => undefined,
    release: async (lockIds: readonly string[]) => {
      released.push(...lockIds);
      return true;
    },
  };
  return { store, limits, released, backend: createBackend(store, {}) };
}

const config = (acquisition?: object) => ({ key: "some:key", ...(acquisition && { acquisition }) });

describe("how to wait", () => {
  test("is what lock() is told", async () => {
    const { limits, backend } = storeDouble();
    await lock(backend, () => 1, config());
    await lock(backend, () => 1, config({ timeoutMs: 700 }));
    await backend.lock("some:key", { acquisition: { timeoutMs: 600 } });
    const observed = withTelemetry(backend, { onEvent: () => undefined });
    await lock(observed, () => 1, config({ timeoutMs: 800 }));
    expect(limits).toEqual([5_000, 700, 600, 800]);
  });

  test("is not there without lock()", async () => {
    const { limits, backend } = storeDouble();
    await backend.acquire({ key: "some:key", ttlMs: 5 });
    expect(limits).toEqual([undefined]);
  });
});

describe("a fence near its limit", () => {
  test("is reported with the hash of the key", async () => {
    const warn = vi.spyOn(console, "warn").mockImplementation(() => undefined);
    await storeDouble(false).backend.acquire({ key: "some:key", ttlMs: 5 });
    expect(warn).not.toHaveBeenCalled();
    await storeDouble(true).backend.acquire({ key: "some:key", ttlMs: 5 });
    expect(warn).toHaveBeenCalledOnce();
    const line = String(warn.mock.calls[0]?.[0]);
    expect(line).toContain(`key=${hashKey("some:key")}`);
    expect(line).not.toContain("some:key");
  });
});

describe("a signal that comes with the grant", () => {
  test("frees the lock and rejects", async () => {
    const { store, released, backend } = storeDouble();
    const controller = new AbortController();
    const { signal } = controller;
    const granted = generateLockId();
    store.acquire.mockImplementationOnce(async () => {
      controller.abort();
      return { lockId: granted, fence: "1", expiresAtMs: 5, fenceNearLimit: false };
    });
    const error = await lockError(backend.acquire({ key: "some:key", ttlMs: 5, signal }));
    expect(error).toMatchObject({ code: "Aborted", message: "Operation aborted by signal" });
    await until(() => released.length === 1);
    expect(released).toEqual([granted]);
  });

  test("is freed before the backend is closed", async () => {
    const { store, released, backend } = storeDouble();
    const controller = new AbortController();
    const { signal } = controller;
    const granted = generateLockId();
    const { promise, resolve } = deferred<unknown>();
    store.acquire.mockImplementationOnce(() => promise as never);
    const closedAfter: string[][] = [];
    Object.assign(store, { close: async () => closedAfter.push([...released]) });
    const acquisition = lockError(backend.acquire({ key: "some:key", ttlMs: 5, signal }));
    controller.abort();
    const closing = backend.close();
    // What is asked for from now on is refused at once.
    expect((await lockError(backend.acquire({ key: "other", ttlMs: 5 }))).message).toBe(
      "the backend is closed",
    );
    resolve({ lockId: granted, fence: "1", expiresAtMs: 5, fenceNearLimit: false });
    expect((await acquisition).code).toBe("Aborted");
    await closing;
    expect(closedAfter).toEqual([[granted]]);
  });

  test("is freed before the backend is closed, however many wrappers are around it", async () => {
    const { store, released, backend } = storeDouble();
    const controller = new AbortController();
    const granted = generateLockId();
    const { promise, resolve } = deferred<unknown>();
    store.acquire.mockImplementationOnce(() => promise as never);
    const closedAfter: string[][] = [];
    Object.assign(store, { close: async () => closedAfter.push([...released]) });
    let wrapped = backend;
    for (let layer = 0; layer < 12; layer += 1) {
      wrapped = withTelemetry(wrapped, { onEvent: () => undefined });
    }
    const attempt = lockError(
      lock(wrapped, () => 1, { key: "some:key", signal: controller.signal }),
    );
    // The backend has answered already; lock() has not heard of it yet.
    const closing = promise.then(() => {
      controller.abort();
      return backend.close();
    });
    resolve({ lockId: granted, fence: "1", expiresAtMs: 5, fenceNearLimit: false });
    expect((await attempt).code).toBe("Aborted");
    await closing;
    expect(closedAfter).toEqual([[granted]]);
  });
});

describe("a backend whose methods are not its own", () => {
  const others: [string, (backend: SyncGuardBackend) => SyncGuardBackend][] = [
    ["a copy", (backend) => ({ ...backend })],
    ["a Proxy", (backend) => new Proxy(backend, {})],
    ["an object that inherits from it", (backend) => Object.create(backend) as SyncGuardBackend],
    ["the backend itself", (backend) => backend],
  ];
  test.each(others)("is asked by these: %s", async (_, other) => {
    for (const wrap of [
      (one: SyncGuardBackend) => one,
      (one: SyncGuardBackend) => withTelemetry(one, { onEvent: () => undefined }),
    ]) {
      const { backend, released } = storeDouble();
      const seen: string[] = [];
      const stand = other(backend);
      const { acquire, release } = backend;
      Object.defineProperties(stand, {
        acquire: {
          value: (opts: Parameters<typeof acquire>[0]) => {
            seen.push("acquire");
            return acquire(opts);
          },
        },
        release: {
          value: (opts: Parameters<typeof release>[0]) => {
            seen.push(`release ${Object.getOwnPropertyNames(opts).join()}`);
            return release(opts);
          },
        },
      });
      await lock(wrap(stand), () => 1, { key: "some:key" });
      expect(seen).toEqual(["acquire", "release lockId"]);
      expect(released).toHaveLength(1);
    }
  });
});

describe("a method that was replaced after the lock was granted", () => {
  const wrappers: [string, (backend: SyncGuardBackend) => SyncGuardBackend][] = [
    ["the backend", (backend) => backend],
    ["a wrapper of it", (backend) => withTelemetry(backend, { onEvent: () => undefined })],
  ];
  test.each(wrappers)("is what handles call: release of %s", async (_, wrap) => {
    const { backend, released } = storeDouble();
    const stand = wrap(backend);
    const handle = await stand.acquire({ key: "some:key", ttlMs: 60_000 });
    const second = await stand.acquire({ key: "some:key", ttlMs: 60_000 });
    if (!handle.ok || !second.ok) throw new Error("not granted");
    const release = vi.fn(stand.release);
    Object.assign(stand, { release });
    const { signal } = new AbortController();
    expect(await handle.release(signal)).toEqual({ ok: true });
    await second[Symbol.asyncDispose]();
    expect(release.mock.calls).toEqual([
      [{ lockId: handle.lockId, signal }],
      [{ lockId: second.lockId }],
    ]);
    expect(released).toEqual([handle.lockId, second.lockId]);
  });

  test.each(wrappers)("is what handles call: extend of %s", async (_, wrap) => {
    const { backend } = storeDouble();
    const stand = wrap(backend);
    const handle = await stand.acquire({ key: "some:key", ttlMs: 60_000 });
    if (!handle.ok) throw new Error("not granted");
    const extend = vi.fn(async () => ({ ok: true, expiresAtMs: 7 }) as const);
    Object.assign(stand, { extend });
    expect(await handle.extend(9_000)).toEqual({ ok: true, expiresAtMs: 7 });
    expect(extend.mock.calls).toEqual([[{ lockId: handle.lockId, ttlMs: 9_000 }]]);
    expect(handle.expiresAtMs).toBe(7);
  });
});

test("a handle of a backend that is closed says which lock it is about", async () => {
  const { store, backend } = storeDouble();
  Object.assign(store, { close: async () => undefined });
  const handle = await backend.acquire({ key: "some:key", ttlMs: 60_000 });
  if (!handle.ok) throw new Error("not granted");
  await backend.close();
  const { lockId } = handle;
  for (const asked of [handle.extend(9_000), handle.release()]) {
    const { code, context } = await lockError(asked);
    expect([code, context]).toEqual(["Aborted", { key: "some:key", lockId }]);
  }
});

test("a lock that is released through another backend is not extended any more", async () => {
  await using own = createSqliteBackend(":memory:");
  const handle = await own.acquire({ key: "some:key", ttlMs: 1_000, autoExtend: true });
  if (!handle.ok) throw new Error("not granted");
  // It says that it has released the lock, which the first one still has.
  const { backend: other, released } = storeDouble();
  expect(await decorateAcquireResult(other, handle, "some:key").release()).toEqual({ ok: true });
  expect(released).toEqual([handle.lockId]);
  await until(async () => !(await own.isLocked({ key: "some:key" })), 30_000);
});
