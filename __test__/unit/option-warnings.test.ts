import { beforeEach, describe, expect, test, vi } from "vitest";
import { getByKey, lock, withTelemetry } from "syncguard";
import { createAtomicLock } from "syncguard/forrst";
import { createSqliteBackend } from "syncguard/sqlite";
import { lockError } from "../support/errors";
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
describe("an option that does not exist, of a function that SyncGuard 2 had,", () => {
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

  test("is told of acquisition, acquire(), withTelemetry() and look-ups too", async () => {
    const backend = createSqliteBackend();
    await call(lock, backend, () => 1, { key: "k", acquisition: { timeout: 5 } });
    await call(backend.acquire, { key: "k", ttlMs: 5, ownr: "me" });
    withTelemetry(backend, { onEvents: () => undefined } as never);
    await call(getByKey, backend, "k", { sgnal: 1 });
    expect(messages()).toEqual([
      "acquisition has no option timeout, which is ignored: did you mean timeoutMs?",
      "acquire() has no option ownr, which is ignored: did you mean owner?",
      "withTelemetry() has no option onEvents, which is ignored: did you mean onEvent?",
      "a lookup has no option sgnal, which is ignored: did you mean signal?",
    ]);
  });

  test("is told in production, too, and not if nothing is given", async () => {
    await call(lock, fakeBackend(), () => 1, { key: "k", nothing: undefined });
    expect(messages()).toEqual([]);
    vi.stubEnv("NODE_ENV", "production");
    await call(lock, fakeBackend(), () => 1, { key: "k", ttls: 600_000 });
    expect(messages()).toEqual([
      "lock() has no option ttls, which is ignored: did you mean ttlMs?",
    ]);
  });

  test("is not told with a value that got to the wrong place", async () => {
    await call(lock, fakeBackend(), () => 1, { key: "k", "redis://me:secret@host": 1 });
    expect(messages()).toEqual(["lock() has no option of a name that is given, which is ignored"]);
  });
});

describe("an option that does not exist, of a function that SyncGuard 2 did not have,", () => {
  const backend = createSqliteBackend();
  const forrst = createAtomicLock(backend);
  test.each<[string, () => Promise<unknown>]>([
    [
      "backend.lock() has no option ttl: did you mean ttlMs?",
      () => call(backend.lock, "k", { ttl: 600_000 }),
    ],
    [
      "backend.lock() has no option timeoutMs: did you mean acquisition.timeoutMs?",
      () => call(backend.lock, "k", { timeoutMs: 5 }),
    ],
    [
      "acquisition has no option retries: did you mean maxRetries?",
      () => call(backend.lock, "k", { acquisition: { retries: 5 } }),
    ],
    [
      "autoExtend has no option every: did you mean everyMs?",
      () => call(lock, backend, () => 1, { key: "k", autoExtend: { every: 5 } }),
    ],
    [
      "forceRelease() has no option reason",
      () => call(backend.forceRelease, "k", { reason: "stuck" }),
    ],
    [
      "releaseAll() has no option timeout: did you mean timeoutMs?",
      () => call(backend.releaseAll, { timeout: 5 }),
    ],
    [
      "createAtomicLock() has no option authorise: did you mean authorize?",
      async () => createAtomicLock(backend, { authorise: () => true } as never),
    ],
    [
      "the call has no option sgnal: did you mean signal?",
      () => call(forrst.handle, { call: { function: "f" } }, () => ({}), { sgnal: 1 }),
    ],
  ])("is refused: %s", async (message, start) => {
    vi.stubEnv("NODE_ENV", "production");
    expect(await lockError(start())).toMatchObject({ code: "InvalidArgument", message });
    expect(await backend.isLocked({ key: "k" })).toBe(false);
    expect(messages()).toEqual([]);
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
  const ends = { onReleaseError, disposeTimeoutMs: 5_000 };
  const options = { ttlMs: 5_000, signal, acquisition, autoExtend: false, owner: "me", ...ends };
  await lock(backend, () => 1, { key: "k", ...options });
  const held = await backend.lock("k", options);
  await held.release();
  await backend.acquire({ key: "k", ttlMs: 5_000, signal, owner: "me" });
  expect(messages()).toEqual([]);
});
