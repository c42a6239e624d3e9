/** Waiting for a lock: what is opened at the server for it, and what becomes of lost messages. */

import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { type AcquisitionOptions, lock } from "syncguard";
import { createRedisBackend } from "syncguard/redis";
import { expectToEnd, runtimes } from "../support/child";
import { startDroppingProxy } from "../support/dropping-proxy";
import { lockError } from "../support/errors";
import type { Library } from "../support/mixed-fleet";
import { type RedisServer, startRedis } from "../support/redis";
import { type Backend, newKey, take } from "../support/suite";
import { until } from "../support/until";
// @ts-expect-error a program of its own, in plain JavaScript
import { typescriptLibrary } from "./fixtures/typescript-library.mjs";

let server: RedisServer;
let backend: Backend;
beforeAll(async () => {
  server = await startRedis();
});
afterAll(async () => {
  await server.stop();
});
beforeEach(() => {
  backend = createRedisBackend(server.url);
});
afterEach(async () => {
  await backend.close();
});

const patient: AcquisitionOptions = {
  maxRetries: Infinity,
  retryDelayMs: 600_000,
  timeoutMs: 600_000,
};

const channels = async () => (await server.admin.pubsub("CHANNELS")) as string[];

test("a thousand keys take one connection, and cancelled waiters leave nothing behind", async () => {
  const keys = Array.from({ length: 1_000 }, newKey);
  await Promise.all(keys.map((key) => take(backend, key)));
  const controller = new AbortController();
  const { signal } = controller;
  const waiters = keys
    .flatMap((key) => [key, key])
    .map((key) => lockError(backend.lock(key, { signal, acquisition: patient })));
  await until(async () => (await channels()).length === 1_000);
  const list = String(await server.admin.call("CLIENT", "LIST", "TYPE", "pubsub"));
  expect(list.trim().split("\n")).toHaveLength(1);
  controller.abort();
  for (const error of await Promise.all(waiters)) expect(error.code).toBe("Aborted");
  await until(async () => (await channels()).length === 0);
  for (const key of keys) expect(await backend.isLocked({ key })).toBe(true);
});

test("who has waited needs no subscription any more", async () => {
  const key = newKey();
  const first = await take(backend, key);
  const second = backend.lock(key, { acquisition: patient });
  await until(async () => (await channels()).length === 1);
  await first.release();
  const held = await second;
  await until(async () => (await channels()).length === 0);
  await held.release();
});

/** Sixteen that want one lock, each a few times; gives the longest time in which nobody held it. */
async function contend(
  connect: (number: number) => Backend,
  acquisition: AcquisitionOptions,
): Promise<number> {
  const key = newKey();
  let inside = 0;
  let freeSince = performance.now();
  let longest = 0;
  await Promise.all(
    Array.from({ length: 16 }, async (_, number) => {
      const one = connect(number);
      for (let round = 0; round < 5; round += 1) {
        await lock(
          one,
          async () => {
            longest = Math.max(longest, performance.now() - freeSince);
            inside += 1;
            expect(inside).toBe(1);
            await sleep(2);
            inside -= 1;
            freeSince = performance.now();
          },
          { key, acquisition: { maxRetries: Infinity, timeoutMs: 60_000, ...acquisition } },
        );
      }
    }),
  );
  return longest;
}

const POLL_MS = 100;
/** Many polls, for a machine that is busy; the lock's own end, which is what wakes those who do not poll, comes later. */
const LONGEST_MS = 10_000;
const polling = { retryDelayMs: POLL_MS, backoff: "fixed", jitter: "none" } as const;

test("a lost message costs no more than the wait for the next retry", async () => {
  const proxy = await startDroppingProxy(server.port);
  const other = createRedisBackend(proxy.url);
  try {
    const longest = await contend(() => other, polling);
    expect(proxy.counts.dropped).toBeGreaterThan(10);
    expect(longest).toBeLessThan(LONGEST_MS);
  } finally {
    await other.close();
    proxy.stop();
  }
});

test("so does a release that sends none, by a process on the TypeScript library", async () => {
  const theirs = (typescriptLibrary as (redis: unknown) => Library)(server.admin);
  const silent = Object.create(backend, {
    release: { value: ({ lockId }: { lockId: string }) => theirs.release({ lockId }) },
  }) as Backend;
  const longest = await contend((number) => (number % 2 === 0 ? backend : silent), polling);
  expect(longest).toBeLessThan(LONGEST_MS);
});

test("while the store tells, retries ask it less and less often", async () => {
  const scripts = async (): Promise<number> => {
    const stats = String(await server.admin.call("INFO", "commandstats"));
    return Number(/cmdstat_evalsha:calls=(\d+)/.exec(stats)?.[1] ?? 0);
  };
  /** How often each of ten asks in three seconds, with a retry every 20 ms. */
  const asked = async (wait: "notify" | "notify-only"): Promise<number> => {
    const keys = Array.from({ length: 10 }, newKey);
    const held = await Promise.all(keys.map((key) => backend.lock(key, { ttlMs: 60_000 })));
    const before = await scripts();
    const acquisition = { ...polling, wait, retryDelayMs: 20, timeoutMs: 3_000 };
    for (const error of await Promise.all(
      keys.map((key) => lockError(backend.lock(key, { acquisition }))),
    )) {
      expect(error.code).toBe("AcquisitionTimeout");
    }
    const each = ((await scripts()) - before) / keys.length;
    await Promise.all(held.map((one) => one.release()));
    return each;
  };
  // At first, when it begins to be told, when it has waited for as long again, and at last.
  expect(await asked("notify")).toBeLessThan(16);
  expect(await asked("notify-only")).toBeLessThan(5);
});

test.each(runtimes)("a process of %s ends with nobody waiting", async (runtime) => {
  await expectToEnd(runtime, "../../redis/fixtures/wait-and-end.mjs", [server.url]);
});
