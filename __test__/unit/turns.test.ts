import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { lock, LockError } from "syncguard";
import { lockError } from "../support/errors";
import { deferred, fakeBackend, LOCKED, scripted } from "../support/fake-backend";

const KEY = "some:key";
const DAY_MS = 24 * 60 * 60 * 1_000;
const patient = { maxRetries: Infinity, timeoutMs: DAY_MS, retryDelayMs: DAY_MS } as const;

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

test("those who wait are served as they came, each as soon as the lock is free", async () => {
  const backend = fakeBackend();
  const first = hold(backend);
  const served: number[] = [];
  const waiters = Array.from({ length: 5 }, (_, number) =>
    lock(backend, () => served.push(number), { key: KEY, acquisition: patient }),
  );
  await settle();
  first.end();
  // No timer has to fire.
  await Promise.all(waiters);
  expect(served).toEqual([0, 1, 2, 3, 4]);
  // Nobody asks while it is known that the lock is held.
  expect(backend.acquired).toHaveLength(6);
});

test("one asks at a time, and there are two timers however many wait", async () => {
  const answers: (() => void)[] = [];
  const backend = fakeBackend({
    acquire: () =>
      new Promise((resolve) => {
        answers.push(() => resolve(LOCKED));
      }),
  });
  const waiters = Array.from({ length: 100 }, () =>
    lockError(lock(backend, () => 1, { key: KEY, acquisition: { timeoutMs: 1_000 } })),
  );
  await settle();
  expect(answers).toHaveLength(1);
  answers[0]?.();
  await settle();
  expect(vi.getTimerCount()).toBe(2);
  // The rest of them is asked when the time of all is over.
  await vi.advanceTimersByTimeAsync(1_000);
  for (const answer of answers) answer();
  await vi.advanceTimersByTimeAsync(2_000);
  for (const error of await Promise.all(waiters)) {
    expect(error.code).toBe("AcquisitionTimeout");
  }
  expect(vi.getTimerCount()).toBe(0);
});

test("who waits behind others gives up when its own time is over", async () => {
  const backend = fakeBackend();
  const first = hold(backend);
  const second = lock(backend, () => 2, { key: KEY, acquisition: patient });
  const times = [300, 100, 200].map(async (timeoutMs) => {
    const start = Date.now();
    const error = await lockError(lock(backend, () => 3, { key: KEY, acquisition: { timeoutMs } }));
    expect(error.code).toBe("AcquisitionTimeout");
    expect(error.message).toBe(
      `Timeout reached before next retry (${timeoutMs} ms elapsed): timeoutMs is over, and somebody holds the lock`,
    );
    return Date.now() - start;
  });
  await vi.advanceTimersByTimeAsync(300);
  expect(await Promise.all(times)).toEqual([300, 100, 200]);
  first.end();
  expect(await second).toBe(2);
  expect(vi.getTimerCount()).toBe(0);
});

test("who waits behind others is told why the store fails", async () => {
  const down = new LockError("ServiceUnavailable", "the store is down");
  const backend = scripted(down);
  const acquisition = { maxRetries: Infinity, timeoutMs: 1_000 };
  const errors = Promise.all(
    Array.from({ length: 3 }, () => lockError(lock(backend, () => 1, { key: KEY, acquisition }))),
  );
  await vi.advanceTimersByTimeAsync(5_000);
  for (const error of await errors) {
    expect(error.code).toBe("ServiceUnavailable");
    expect(error.message).toContain("the store is down");
  }
});

test("who is cancelled makes way, first or not", async () => {
  const backend = fakeBackend();
  const first = hold(backend);
  const controllers = [0, 1, 2].map(() => new AbortController());
  const cancelled = controllers.map(({ signal }) =>
    lockError(lock(backend, () => 1, { key: KEY, signal, acquisition: patient })),
  );
  const last = lock(backend, () => "last", { key: KEY, acquisition: patient });
  await settle();
  for (const number of [1, 0, 2]) {
    controllers[number]?.abort();
    expect((await cancelled[number])?.code).toBe("Aborted");
  }
  first.end();
  expect(await last).toBe("last");
  expect(vi.getTimerCount()).toBe(0);
});

test("who is cancelled in the moment of its turn passes it on", async () => {
  const backend = fakeBackend();
  const first = hold(backend);
  const controller = new AbortController();
  const second = lock(
    backend,
    () => {
      controller.abort();
      return "second";
    },
    { key: KEY, acquisition: patient },
  );
  const { signal } = controller;
  const third = lockError(lock(backend, () => 3, { key: KEY, signal, acquisition: patient }));
  const fourth = lock(backend, () => "fourth", { key: KEY, acquisition: patient });
  await settle();
  first.end();
  expect(await second).toBe("second");
  expect((await third).code).toBe("Aborted");
  expect(await fourth).toBe("fourth");
});

test("who does not wait does not queue", async () => {
  const backend = fakeBackend();
  const first = hold(backend);
  const second = lock(backend, () => 2, { key: KEY, acquisition: patient });
  await settle();
  const asked = backend.acquired.length;
  for (const acquisition of [{ maxRetries: 0 }, { timeoutMs: 0 }]) {
    const error = await lockError(lock(backend, () => 3, { key: KEY, acquisition }));
    expect(error.code).toBe("AcquisitionTimeout");
  }
  expect(backend.acquired).toHaveLength(asked + 2);
  first.end();
  expect(await second).toBe(2);
});

test("another key, and another backend, have queues of their own", async () => {
  const backend = fakeBackend();
  const first = hold(backend);
  const waiter = lock(backend, () => 2, { key: KEY, acquisition: patient });
  await settle();
  expect(await lock(backend, () => "free", { key: "other" })).toBe("free");
  expect(await lock(fakeBackend(), () => "free", { key: KEY })).toBe("free");
  first.end();
  await waiter;
});

/** Stores that tell of nothing: somebody else, far away, holds the lock until `freeAtMs`. */
function heldElsewhere(freeAtMs: number) {
  const backend = fakeBackend();
  const acquire = backend.acquire;
  const start = Date.now();
  backend.acquire = async (opts) =>
    Date.now() - start < freeAtMs ? (backend.acquired.push(opts), LOCKED) : await acquire(opts);
  return backend;
}

test("the queue asks at the pace of its most eager member, and the first gets the lock", async () => {
  const backend = heldElsewhere(11_000);
  const got: [string, number][] = [];
  const start = Date.now();
  const waits = async (name: string, acquisition: object): Promise<void> => {
    await lock(backend, () => got.push([name, Date.now() - start]), { key: KEY, acquisition });
  };
  const first = waits("first", { timeoutMs: 60_000, jitter: "none" });
  await vi.advanceTimersByTimeAsync(10_000);
  const asked = backend.acquired.length;
  // Alone, the first would not ask before 12,700, and then at 25,500.
  const second = waits("second", { jitter: "none" });
  await vi.advanceTimersByTimeAsync(5_000);
  await Promise.all([first, second]);
  expect(got.map(([name]) => name)).toEqual(["first", "second"]);
  for (const [, atMs] of got) expect(atMs).toBeLessThan(12_000);
  expect(backend.acquired.length - asked).toBeLessThan(12);
  expect(vi.getTimerCount()).toBe(0);
});

test("those who come together ask no more often than one of them alone", async () => {
  const backend = heldElsewhere(Infinity);
  const acquisition = { timeoutMs: 5_000 };
  const errors = Array.from({ length: 500 }, () =>
    lockError(lock(backend, () => 1, { key: KEY, acquisition })),
  );
  await vi.advanceTimersByTimeAsync(5_000);
  for (const { code } of await Promise.all(errors)) expect(code).toBe("AcquisitionTimeout");
  // When the time of the first is over, each of the others whose time is not may ask once.
  expect(backend.acquired.length).toBeLessThan(30);
});

test("what those behind ask for is no retry of the first", async () => {
  const backend = heldElsewhere(1_000);
  const first = lock(backend, () => "first", {
    key: KEY,
    acquisition: { maxRetries: 2, retryDelayMs: 900, jitter: "none" },
  });
  const eager = { maxRetries: Infinity, retryDelayMs: 20, backoff: "fixed" } as const;
  const second = lock(backend, () => "second", { key: KEY, acquisition: eager });
  await vi.advanceTimersByTimeAsync(1_050);
  expect(await first).toBe("first");
  expect(await second).toBe("second");
});

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
  expect(error.message).toBe('wait must be "notify" or "poll"');
});
