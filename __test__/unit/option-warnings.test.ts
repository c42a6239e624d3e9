import { beforeEach, describe, expect, test, vi } from "vitest";
import { lock } from "syncguard";
import { createSqliteBackend } from "syncguard/sqlite";
import { fakeBackend } from "../support/fake-backend";

const spy = () => vi.spyOn(process, "emitWarning").mockImplementation(() => undefined);
let warn: ReturnType<typeof spy>;
const messages = (): unknown[] => warn.mock.calls.map(([message]) => message);
const call = (operation: unknown, ...args: unknown[]): Promise<unknown> =>
  (operation as (...given: unknown[]) => Promise<unknown>)(...args);

beforeEach(() => {
  vi.stubEnv("NODE_ENV", "test");
  warn = spy();
});

// Each name is warned of once in a process, so each test has names of its own.
describe("an option that does not exist", () => {
  test("is told once, with the name that was meant", async () => {
    const backend = fakeBackend();
    for (let round = 0; round < 3; round += 1) {
      await call(lock, backend, () => 1, { key: "k", ttl: 5, timeoutMs: 1, colour: "red" });
    }
    expect(messages()).toEqual([
      "lock() has no option ttl, which is ignored: did you mean ttlMs?",
      "lock() has no option timeoutMs, which is ignored: did you mean acquisition.timeoutMs?",
      "lock() has no option colour, which is ignored",
    ]);
    expect(warn.mock.calls[0]?.[1]).toEqual({
      type: "SyncGuardWarning",
      code: "SYNCGUARD_UNKNOWN_OPTION",
    });
    expect(backend.acquired).toHaveLength(3);
  });

  test("is told of acquisition, backend.lock() and acquire() too", async () => {
    const backend = createSqliteBackend();
    await call(lock, backend, () => 1, { key: "k", acquisition: { timeout: 5 } });
    const held = (await call(backend.lock, "k", { ttlMS: 5_000 })) as { release(): unknown };
    await held.release();
    await call(backend.acquire, { key: "k", ttlMs: 5, ownr: "me" });
    expect(messages()).toEqual([
      "acquisition has no option timeout, which is ignored: did you mean timeoutMs?",
      "backend.lock() has no option ttlMS, which is ignored: did you mean ttlMs?",
      "acquire() has no option ownr, which is ignored: did you mean owner?",
    ]);
  });

  test("is not told in production, nor if nothing is given", async () => {
    await call(lock, fakeBackend(), () => 1, { key: "k", nothing: undefined });
    vi.stubEnv("NODE_ENV", "production");
    await call(lock, fakeBackend(), () => 1, { key: "k", inProduction: 1 });
    expect(messages()).toEqual([]);
  });

  test("is not told with a value that got to the wrong place", async () => {
    await call(lock, fakeBackend(), () => 1, { key: "k", "redis://me:secret@host": 1 });
    expect(messages()).toEqual(["lock() has no option of a name that is given, which is ignored"]);
  });
});

test("options that exist are not told", async () => {
  const backend = createSqliteBackend();
  const { signal } = new AbortController();
  const acquisition = {
    maxRetries: 1,
    retryDelayMs: 1,
    backoff: "fixed",
    jitter: "none",
    timeoutMs: 5_000,
    signal,
  } as const;
  const onReleaseError = (): void => undefined;
  await lock(backend, () => 1, { key: "k", ttlMs: 5_000, signal, onReleaseError, acquisition });
  const options = { ttlMs: 5_000, signal, acquisition, onReleaseError, owner: "me" };
  const held = await backend.lock("k", { ...options, disposeTimeoutMs: 5_000 });
  await held.release();
  await backend.acquire({ key: "k", ttlMs: 5_000, signal, owner: "me" });
  expect(messages()).toEqual([]);
});
