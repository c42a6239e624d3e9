import { existsSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { createLock, createSqliteBackend, type SqliteBackendOptions } from "syncguard/sqlite";
import { lockError, thrownLockError } from "../support/errors";
import { temporaryFolder } from "../support/temp";

const KEY = "some:key";

let folder: ReturnType<typeof temporaryFolder>;
beforeEach(() => {
  folder = temporaryFolder();
});
afterEach(() => {
  folder.remove();
});

describe("createSqliteBackend", () => {
  test("takes a path, a URL or options", async () => {
    const path = join(folder.path, "locks.db");
    const backends = [
      createSqliteBackend(path),
      createSqliteBackend(path, { cleanupInIsLocked: true }),
      createSqliteBackend({ path, allowNetworkFileSystem: true }),
      createSqliteBackend({ path: `sqlite://${path}` }),
      createSqliteBackend(`sqlite:${path}`),
    ];
    const holder = backends[0]!;
    await holder.acquire({ key: KEY, ttlMs: 5_000 });
    for (const backend of backends) {
      expect(await backend.isLocked({ key: KEY })).toBe(true);
      await backend.close();
    }
  });

  test("keeps what is in memory to itself", async () => {
    const backends = [
      createSqliteBackend(":memory:"),
      createSqliteBackend(),
      createSqliteBackend({}),
      createSqliteBackend("sqlite::memory:"),
    ];
    for (const backend of backends) {
      expect((await backend.acquire({ key: KEY, ttlMs: 5_000 })).ok).toBe(true);
    }
    expect(existsSync(":memory:")).toBe(false);
  });

  test("says what it can do", () => {
    expect(createSqliteBackend().capabilities).toEqual({
      backend: "sqlite",
      supportsFencing: true,
      timeAuthority: "server",
    });
  });

  test("touches no file before the first operation, and asks for a folder that exists", async () => {
    const path = join(folder.path, "missing", "locks.db");
    const backend = createSqliteBackend(path);
    const error = await lockError(backend.isLocked({ key: KEY }));
    expect(error.code).toBe("InvalidArgument");
    const later = join(folder.path, "later.db");
    createSqliteBackend(later);
    expect(existsSync(later)).toBe(false);
  });

  test.each([
    [null, undefined],
    [5, undefined],
    ["", undefined],
    [{ path: 5 }, undefined],
    [{ path: "" }, undefined],
    ["sqlite://host/x", undefined],
    [":memory:", 5],
    [{ cleanUpInIsLocked: true }, undefined],
    [":memory:", { onReleaseError: "log" }],
    [":memory:", { disposeTimeoutMs: 0 }],
    [":memory:", { disposeTimeoutMs: "5" }],
    [":memory:", { operationTimeoutMs: 0 }],
    [":memory:", { operationTimeoutMs: Number.NaN }],
    [":memory:", { operationTimeoutMs: "5" }],
    [":memory:", { cleanupInIsLocked: "yes" }],
    [":memory:", { allowNetworkFileSystem: "yes" }],
  ])("refuses %j, %j", (first, second) => {
    const create = createSqliteBackend as (...args: unknown[]) => unknown;
    expect(thrownLockError(() => create(first, second)).code).toBe("InvalidArgument");
  });

  test("reports a release that failed during disposal", async () => {
    const onReleaseError = vi.fn<NonNullable<SqliteBackendOptions["onReleaseError"]>>();
    const backend = createSqliteBackend(":memory:", { onReleaseError });
    const own = vi.fn();
    const first = await backend.lock("first");
    const second = await backend.lock("second", { onReleaseError: own });
    const third = await backend.lock("third", { disposeTimeoutMs: 5_000 });
    await backend.close();
    for (const held of [first, second, third]) await held[Symbol.asyncDispose]();
    expect(onReleaseError.mock.calls.map(([, { key }]) => key)).toEqual(["first", "third"]);
    expect(own.mock.calls).toMatchObject([[{ name: "LockError" }, { key: "second" }]]);
  });
});

describe("createLock", () => {
  test("binds lock() to a backend", async () => {
    const path = join(folder.path, "locks.db");
    const lock = createLock(path, { cleanupInIsLocked: true });
    const backend = createSqliteBackend(path);
    expect(await lock(() => backend.isLocked({ key: KEY }), { key: KEY })).toBe(true);
    expect(await backend.isLocked({ key: KEY })).toBe(false);
    expect(await createLock({ path })(() => backend.isLocked({ key: KEY }), { key: KEY })).toBe(
      true,
    );
    expect(await createLock()(() => backend.isLocked({ key: KEY }), { key: KEY })).toBe(false);
  });
});
