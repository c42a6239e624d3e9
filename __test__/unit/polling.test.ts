import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { lock, type LockError } from "syncguard";
import { createSqliteBackend } from "syncguard/sqlite";
import { lockError } from "../support/errors";
import { deferred, fakeBackend, LOCKED } from "../support/fake-backend";

const KEY = "some:key";

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  vi.restoreAllMocks();
  vi.useRealTimers();
});

/** Lets everything run that waits for no timer. */
async function settle(): Promise<void> {
  await vi.advanceTimersByTimeAsync(0);
}

/** A lock that is held until it is told to end. */
function hold(backend: ReturnType<typeof fakeBackend>) {
  const end = deferred<null>();
  const held = lock(backend, () => end.promise, { key: KEY });
  return { end: () => end.resolve(null), held };
}

/** Stores that tell of nothing: somebody else, far away, holds the lock until `freeAtMs`. */
function heldElsewhere(freeAtMs: number) {
  const backend = fakeBackend();
  const acquire = backend.acquire;
  const start = Date.now();
  backend.acquire = async (opts) =>
    Date.now() - start < freeAtMs ? (backend.acquired.push(opts), LOCKED) : await acquire(opts);
  return backend;
}

test("a longest wait between two attempts can be given", async () => {
  const backend = heldElsewhere(60_000);
  const acquisition = { maxRetries: Infinity, timeoutMs: 70_000, maxRetryDelayMs: 1_000 };
  const held = lock(backend, () => Date.now(), { key: KEY, acquisition });
  await vi.advanceTimersByTimeAsync(61_000);
  await held;
  expect(backend.acquired.length).toBeGreaterThan(60);
  const bad = { maxRetryDelayMs: 0 };
  const error = await lockError(lock(backend, () => 1, { key: KEY, acquisition: bad }));
  expect(error.message).toBe("maxRetryDelayMs must be a positive number");
});

test("whoever waits asks by itself, as the rules for polling say", async () => {
  const backend = heldElsewhere(1_000);
  const acquisition = { backoff: "fixed", jitter: "none", retryDelayMs: 300 } as const;
  const served: number[] = [];
  const waiters = [1, 2].map((number) =>
    lock(backend, () => served.push(number), { key: KEY, acquisition }),
  );
  await vi.advanceTimersByTimeAsync(900);
  expect(backend.acquired).toHaveLength(8);
  await vi.advanceTimersByTimeAsync(600);
  await Promise.all(waiters);
  expect(served).toEqual([1, 2]);
  expect(vi.getTimerCount()).toBe(0);
});

type Step = {
  failedWith: string | null;
  elapsedMs: number;
  random: number;
  isHinted: boolean;
  limitMs: number | null;
  isCut: boolean;
  waitMs?: number;
  givesUp?: string;
  contention?: string;
};

/** `crates/syncguard/src/waiting/retry/tests.rs` reads the same. */
test("the rules are the core's", () => {
  const load = createRequire(import.meta.url);
  const { createRetryState } = load("../../dist/values/retry.js") as {
    createRetryState: (policy: object) => {
      attemptTimeoutMs: (elapsedMs: number) => number;
      isCut: (failedWith: string, elapsedMs: number) => boolean;
      after: (...args: unknown[]) => number | string;
    };
  };
  const { Policy } = load("../../dist/values/wait.js") as { Policy: { of: (o: object) => object } };
  const file = new URL("../../crates/syncguard/src/waiting/retry/vectors.json", import.meta.url);
  const cases = JSON.parse(readFileSync(file, "utf8")) as { policy: object; steps: Step[] }[];
  expect(cases.length).toBeGreaterThan(100);
  for (const { policy, steps } of cases) {
    const entries = Object.entries(policy).map(([name, value]): [string, unknown] => [
      name,
      value ?? Infinity,
    ]);
    const state = createRetryState(Policy.of(Object.fromEntries(entries)));
    let elapsedMs = 0;
    for (const step of steps) {
      expect(state.attemptTimeoutMs(elapsedMs)).toBe(step.limitMs ?? Infinity);
      elapsedMs = step.elapsedMs;
      expect(state.isCut("NetworkTimeout", elapsedMs)).toBe(step.isCut);
      const decide = () => state.after(step.failedWith, elapsedMs, step.random, step.isHinted);
      if (step.contention === undefined) expect(decide()).toBe(step.waitMs ?? step.givesUp);
      else expect(decide).toThrow(step.contention);
      elapsedMs += Math.round(step.waitMs ?? 0);
    }
  }
});

describe("a lock inside itself", () => {
  const acquisition = { timeoutMs: 1_000 };
  const INSIDE = /^Timeout reached before next retry .*: a lock\(\) around this very call/;

  test("is told of once in development, and by the error always", async () => {
    const warn = vi.spyOn(console, "warn").mockImplementation(() => undefined);
    const backend = fakeBackend();
    const inner = async (): Promise<LockError> =>
      await lockError(lock(backend, () => 1, { key: KEY, acquisition }));
    const outer = lock(
      backend,
      async () => {
        await Promise.resolve();
        // The second waits behind the first.
        return await Promise.all([inner(), lock(backend, inner, { key: "other" })]);
      },
      { key: KEY },
    );
    await settle();
    // At once, and not only when the time is over.
    expect(warn).toHaveBeenCalledOnce();
    expect(warn.mock.calls[0]?.[0]).toContain("inside another lock() that holds the same lock");
    expect(warn.mock.calls[0]?.[0]).not.toContain(KEY);
    await vi.advanceTimersByTimeAsync(1_000);
    for (const error of await outer) {
      expect(error.code).toBe("AcquisitionTimeout");
      expect(error.message).toMatch(INSIDE);
    }
    expect(warn).toHaveBeenCalledOnce();
  });

  test("is told of where the core waits, too, and not once the outer lock is lost", async () => {
    vi.useRealTimers();
    const warn = vi.spyOn(console, "warn").mockImplementation(() => undefined);
    await using backend = createSqliteBackend(":memory:");
    const quick = { acquisition: { timeoutMs: 20 } };
    const inner = (): Promise<LockError> => lockError(backend.lock(KEY, quick));
    const error = await lock(backend, inner, { key: KEY });
    expect(error.message).toMatch(INSIDE);
    const afterLoss = lock(
      backend,
      async () => {
        await backend.forceRelease(KEY);
        await using held = await backend.lock(KEY);
        return held.key;
      },
      { key: KEY },
    );
    expect(await afterLoss).toBe(KEY);
    // Developers were told by the test before.
    expect(warn.mock.calls.length).toBeLessThanOrEqual(1);
  });

  test("is told what to do, whichever of the two is shared", async () => {
    vi.useRealTimers();
    const warn = vi.spyOn(console, "warn").mockImplementation(() => undefined);
    await using backend = createSqliteBackend(":memory:");
    const quick = { acquisition: { timeoutMs: 20 } };
    type Mode = "shared" | "exclusive";
    const inside = async (outer: Mode, inner: Mode): Promise<unknown> =>
      await lock(
        backend,
        () => backend.lock(KEY, { ...quick, mode: inner }).then(({ ok }) => ok, String),
        { key: KEY, mode: outer },
      );
    const upgrade = /: a lock\(\) around this very call, which shares the key .* release that, and/;
    expect(await inside("shared", "exclusive")).toMatch(upgrade);
    expect(await inside("exclusive", "shared")).toMatch(/cannot end before it: work under that/);
    expect(await inside("shared", "shared")).toBe(true);
    const warnings = warn.mock.calls.map(([text]) => String(text));
    expect(warnings.filter((text) => text.includes("shares its key"))).toHaveLength(1);
  });

  test("is none on another backend, in another chain of calls, or once the outer lock has ended", async () => {
    const backend = fakeBackend();
    const first = hold(backend);
    const other = await lockError(
      lock(
        fakeBackend(),
        async () => {
          const inner = lock(backend, () => 1, { key: KEY, acquisition });
          inner.catch(() => undefined);
          await vi.advanceTimersByTimeAsync(1_000);
          return await inner;
        },
        { key: KEY },
      ),
    );
    expect(other.message).not.toMatch(INSIDE);
    first.end();
    await first.held;
    const later = deferred<null>();
    let late: Promise<LockError> | undefined;
    await lock(
      backend,
      () => {
        late = later.promise.then(() =>
          lockError(lock(backend, () => 1, { key: KEY, acquisition })),
        );
      },
      { key: KEY },
    );
    hold(backend);
    await settle();
    later.resolve(null);
    await vi.advanceTimersByTimeAsync(1_000);
    expect((await late)?.message).not.toMatch(INSIDE);
  });
});

test("wait is checked", async () => {
  const acquisition = { wait: "notfy" as "notify" };
  const error = await lockError(lock(fakeBackend(), () => 1, { key: KEY, acquisition }));
  expect(error.code).toBe("InvalidArgument");
  expect(error.message).toBe('wait must be "notify", "notify-only" or "poll"');
});
