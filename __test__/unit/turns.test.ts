import { afterEach, beforeEach, expect, test, vi } from "vitest";
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
    expect(error.message).toBe(`Timeout reached before next retry (${timeoutMs} ms elapsed)`);
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

test("wait is checked", async () => {
  const acquisition = { wait: "notfy" as "notify" };
  const error = await lockError(lock(fakeBackend(), () => 1, { key: KEY, acquisition }));
  expect(error.code).toBe("InvalidArgument");
  expect(error.message).toBe('wait must be "notify" or "poll"');
});
