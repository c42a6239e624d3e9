/** Who hears first that a lock is free, on a store that tells. */

import { createRequire } from "node:module";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { generateLockId, lock, type SyncGuardBackend } from "syncguard";
import { deferred } from "../support/fake-backend";

const { createBackend } = createRequire(import.meta.url)("../../dist/lock/native-backend.js") as {
  createBackend: (store: unknown, options: object) => SyncGuardBackend;
};

const KEY = "some:key";
const DAY_MS = 24 * 60 * 60 * 1_000;
const acquisition = { maxRetries: Infinity, timeoutMs: DAY_MS, retryDelayMs: DAY_MS } as const;

/** A store with one lock. It grants it while `isFree`, in the order of calls, and answers releases when it is told to. */
function storeDouble(name: string) {
  const store = {
    isFree: true,
    attempts: 0,
    /** Behind which release it was last asked. */
    behind: undefined as string | undefined,
    released: undefined as string | undefined,
    releases: [] as (() => void)[],
    onFreed: (): void => undefined,
    capabilities: { backend: name, supportsFencing: true, timeAuthority: "server" },
    acquire: async (...args: unknown[]) => {
      store.attempts += 1;
      store.behind = args[5] as string | undefined;
      if (!store.isFree) return 0;
      store.isFree = false;
      const lockId = generateLockId();
      return { lockId, fence: "000000000000001", expiresAtMs: Date.now(), fenceNearLimit: false };
    },
    release: (lockId: string) => {
      store.isFree = true;
      store.released = lockId;
      const answer = deferred<true>();
      store.releases.push(() => answer.resolve(true));
      return answer.promise;
    },
    watch: (_key: string, onFreed: () => void) => {
      store.onFreed = onFreed;
      return { isListening: true, next: () => undefined, close: () => undefined };
    },
  };
  return store;
}

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** Lets everything run that waits for no timer. */
async function settle(): Promise<void> {
  await vi.advanceTimersByTimeAsync(0);
}

/** Some that want the lock; each holds it until it is told to let go. */
function contenders(store: ReturnType<typeof storeDouble>, count: number) {
  const backend = createBackend(store, {});
  const holders: (() => void)[] = [];
  const all = Array.from({ length: count }, () =>
    lock(
      backend,
      () => {
        const end = deferred<null>();
        holders.push(() => end.resolve(null));
        return end.promise;
      },
      { key: KEY, acquisition },
    ),
  );
  /** Lets the last holder go. */
  const next = async (): Promise<void> => {
    holders.at(-1)?.();
    await settle();
  };
  return { holders, all, next };
}

/** The first release is one of which all hear. */
async function opened(store: ReturnType<typeof storeDouble>, next: () => Promise<void>) {
  await next();
  expect(store.attempts).toBe(1);
  store.releases.at(-1)?.();
  store.onFreed();
  await settle();
  expect(store.attempts).toBe(2);
}

test.each(["redis", "postgres"])("on %s the next asks behind the release", async (name) => {
  const store = storeDouble(name);
  const { holders, next } = contenders(store, 4);
  await settle();
  await opened(store, next);
  expect(store.behind).toBe(undefined);
  await next();
  expect(holders).toHaveLength(3);
  expect(store.attempts).toBe(3);
  expect(store.behind).toBe(store.released);
  // The message of that release comes late, and wakes nobody.
  store.releases.at(-1)?.();
  store.onFreed();
  await settle();
  expect(store.attempts).toBe(3);
  // A message that comes later is of something else, such as a forced release.
  await vi.advanceTimersByTimeAsync(100);
  store.onFreed();
  await settle();
  expect(store.attempts).toBe(4);
});

test("four times a second all processes have the same chance", async () => {
  const store = storeDouble("redis");
  const { holders, next } = contenders(store, 12);
  await settle();
  await opened(store, next);
  for (let round = 0; round < 6; round += 1) await next();
  expect(holders).toHaveLength(8);
  await vi.advanceTimersByTimeAsync(250);
  await next();
  // Nobody asks before the store tells.
  expect(store.attempts).toBe(8);
  store.onFreed();
  await settle();
  expect(holders).toHaveLength(9);
  await next();
  expect(holders).toHaveLength(10);
});

test("where others hear later, all have the same chance once they have heard", async () => {
  const store = storeDouble("sqlite");
  const { holders, next } = contenders(store, 3);
  await settle();
  await next();
  store.onFreed();
  await settle();
  expect(store.attempts).toBe(1);
  await vi.advanceTimersByTimeAsync(3);
  expect(store.attempts).toBe(2);
  // Within this process it goes on without a pause.
  await next();
  expect(holders).toHaveLength(3);
});

test("while others want the lock, it is never handed over", async () => {
  const store = storeDouble("redis");
  store.isFree = false;
  const { holders, next } = contenders(store, 4);
  await settle();
  // Somebody else has it.
  expect(store.attempts).toBe(1);
  store.isFree = true;
  store.onFreed();
  await settle();
  await next();
  expect(holders).toHaveLength(1);
  store.onFreed();
  await settle();
  expect(holders).toHaveLength(2);
  // After a second without them, it is.
  await vi.advanceTimersByTimeAsync(1_000);
  await next();
  store.onFreed();
  await settle();
  expect(holders).toHaveLength(3);
  await next();
  expect(holders).toHaveLength(4);
});
