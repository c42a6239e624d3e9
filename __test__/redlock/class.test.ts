/** The class of redlock 5, on every store; and what programs use of it, on redlock itself, so that the tests are about redlock. */

import { createRequire } from "node:module";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { LockError } from "syncguard";
import * as ours from "syncguard/redlock";
import { createTestBackend } from "syncguard/testing";
import { rejection, thrownLockError } from "../support/errors";
import { root } from "../package/installed.js";
import { type RedisServer, startRedis } from "../support/redis";
import { newKey, onEveryStore } from "../support/suite";
import { until } from "../support/until";

const { ExecutionError, Lock, Redlock, ResourceLockedError } = ours;
type Library = Pick<typeof ours, "ExecutionError" | "Lock" | "Redlock" | "ResourceLockedError">;

/** The library itself, where the benchmarks have it. */
const original = createRequire(join(root, "bench/alternatives/package.json"))("redlock") as Omit<
  Library,
  "Redlock"
> & { default: Library["Redlock"] };

const ONCE = { retryCount: 0 };
const LONG_MS = 60_000;

/** What programs rely on: each with one resource and with several. */
function behavesAsRedlock(library: Library, create: () => ours.Redlock): void {
  const some = (): [string, string[]][] => [
    ["a single resource", [newKey()]],
    ["several resources", [newKey(), newKey()]],
  ];

  test.concurrent.each(some())("acquires, extends and releases %s", async (_, resources) => {
    const redlock = create();
    const lock = await redlock.acquire(resources, 10_000);
    expect(lock).toMatchObject({ redlock, resources });
    expect(lock.value.length).toBeGreaterThan(20);
    expect(lock.expiration - Date.now()).toBeGreaterThan(5_000);
    expect(lock.expiration - Date.now()).toBeLessThanOrEqual(10_000);
    const [attempt] = await Promise.all(lock.attempts);
    expect(attempt).toMatchObject({ membershipSize: 1, quorumSize: 1 });
    expect([attempt?.votesFor.size, attempt?.votesAgainst.size]).toEqual([1, 0]);

    const extended = await lock.extend(3 * 10_000);
    expect(lock.expiration).toBe(0);
    expect(extended).toMatchObject({ resources, value: lock.value });
    expect(extended.expiration - Date.now()).toBeGreaterThan(20_000);

    const { attempts } = await extended.release();
    expect(await Promise.all(attempts)).toMatchObject([{ membershipSize: 1 }]);
    expect(extended.expiration).toBe(0);
    const again = await redlock.acquire(resources, LONG_MS, ONCE);
    await redlock.release(again);
  });

  test.concurrent.each(some())("fails while somebody holds %s", async (_, resources) => {
    const redlock = create();
    const lock = await create().acquire(resources.slice(0, 1), LONG_MS);
    const error = (await rejection(
      redlock.acquire(resources, LONG_MS, { retryCount: 1 }),
    )) as never;
    expect(error).toBeInstanceOf(library.ExecutionError);
    const { message, attempts } = error as InstanceType<typeof ExecutionError>;
    expect(message).toMatch(/unable to achieve a quorum/);
    const votes = await Promise.all(attempts);
    const [reason] = votes.flatMap(({ votesAgainst }) => [...votesAgainst.values()]);
    expect(reason).toBeInstanceOf(library.ResourceLockedError);
    // All or nothing.
    for (const free of resources.slice(1)) await (await redlock.acquire([free], LONG_MS)).release();
    await lock.release();
  });

  test.concurrent("a lock that was released is neither released nor extended again", async () => {
    const redlock = create();
    const lock = await redlock.acquire([newKey()], LONG_MS);
    await lock.release();
    expect(await rejection(redlock.release(lock, ONCE))).toBeInstanceOf(library.ExecutionError);
    const error = await rejection(lock.extend(LONG_MS));
    expect(error).toBeInstanceOf(library.ExecutionError);
    expect((error as Error).message).toBe("Cannot extend an already-expired lock.");
  });

  test.concurrent("a lock that has ended is not extended, and its resource is free", async () => {
    const redlock = create();
    const resources = [newKey()];
    const lock = await redlock.acquire(resources, 200);
    await until(() => Date.now() > lock.expiration + 10);
    expect(await rejection(lock.extend(LONG_MS))).toBeInstanceOf(library.ExecutionError);
    await (await redlock.acquire(resources, LONG_MS, { retryCount: 60 })).release();
  });

  test.concurrent("waits for a lock that is released", async () => {
    const redlock = create();
    const resources = [newKey()];
    const lock = await redlock.acquire(resources, LONG_MS);
    const waiting = redlock.acquire(resources, LONG_MS, { retryCount: -1, retryDelay: 50 });
    await lock.release();
    await (await waiting).release();
  });

  test.concurrent("using() holds its resources past the duration, and frees them", async () => {
    const redlock = create();
    const resources = [newKey(), newKey()];
    const result = await redlock.using(resources, 2_000, async (signal) => {
      // The tolerance of a second has passed, too.
      await sleep(3_500);
      expect([signal.aborted, signal.error]).toEqual([false, undefined]);
      const refused = rejection(create().acquire(resources, LONG_MS, ONCE));
      expect(await refused).toBeInstanceOf(library.ExecutionError);
      return 42;
    });
    expect(result).toBe(42);
    await (await redlock.acquire(resources, LONG_MS, ONCE)).release();
  });

  test.concurrent("using() gives what the routine throws, and frees the resources", async () => {
    const redlock = create();
    const resources = [newKey()];
    const failing = redlock.using(resources, 5_000, ONCE, async () => {
      await Promise.resolve();
      throw new TypeError("mine");
    });
    expect(await rejection(failing)).toEqual(new TypeError("mine"));
    await (await redlock.acquire(resources, LONG_MS, ONCE)).release();
  });

  test.concurrent("tells of errors by an event, which needs no listener", async () => {
    const redlock = create();
    const told: unknown[] = [];
    const resources = [newKey()];
    const lock = await redlock.acquire(resources, LONG_MS);
    await rejection(redlock.acquire(resources, LONG_MS, ONCE));
    redlock.on("error", (error) => told.push(error));
    await rejection(redlock.acquire(resources, LONG_MS, ONCE));
    expect(told[0]).toBeInstanceOf(library.ResourceLockedError);
    await lock.release();
  });

  test.concurrent("a lock is released elsewhere by its value", async () => {
    const redlock = create();
    const resources = [newKey(), newKey()];
    const { value } = await redlock.acquire(resources, LONG_MS);
    const end = Date.now() + LONG_MS;
    await new library.Lock(create(), resources, value, [], end).release();
    await (await redlock.acquire(resources, LONG_MS, ONCE)).release();
  });

  test("refuses a duration that is no whole number, and one that is too short to extend", async () => {
    const redlock = create();
    expect(await rejection(redlock.acquire([newKey()], 0.5))).toBeInstanceOf(Error);
    const short = redlock.using([newKey()], 550, async () => await Promise.resolve(1));
    expect(((await rejection(short)) as Error).message).toMatch(/automaticExtensionThreshold/);
  });
}

onEveryStore("redlock's class", (connect) => {
  behavesAsRedlock(ours, () => new Redlock([connect()]));

  test.concurrent(
    "a lock that is put out is told to the routine, and using() rejects",
    async () => {
      const backend = connect();
      const resource = newKey();
      const told: unknown[] = [];
      const redlock = new Redlock([backend]).on("error", (error) => told.push(error));
      const error = await rejection(
        redlock.using([resource], 2_000, async (signal) => {
          await backend.forceRelease(resource);
          await until(() => signal.aborted);
          expect(signal.error).toBeInstanceOf(ExecutionError);
          return 42;
        }),
      );
      expect(error).toBeInstanceOf(ExecutionError);
      expect((error as Error).cause).toMatchObject({ code: "LockLost" });
      expect(told).toContain((error as Error).cause);
    },
  );

  test.concurrent("each resource has a fence, which grows", async () => {
    const redlock = new Redlock([connect()]);
    const [one, two] = [newKey(), newKey()] as const;
    const first = await redlock.acquire([one, two], LONG_MS);
    expect([...first.fences.keys()].sort()).toEqual([one, two].sort());
    await first.release();
    const second = await redlock.acquire([one], LONG_MS);
    expect((second.fences.get(one) ?? "") > (first.fences.get(one) ?? "")).toBe(true);
    await second.release();
  });
});

describe("on Redis", () => {
  let server: RedisServer;
  const clients: Redis[] = [];
  const client = (): Redis => {
    const redis = new Redis(server.url);
    clients.push(redis);
    return redis;
  };
  beforeAll(async () => {
    server = await startRedis();
  });
  afterAll(async () => {
    for (const redis of clients) redis.disconnect();
    await server.stop();
  });

  describe("redlock itself", () => {
    const { default: Original, ...errors } = original;
    behavesAsRedlock({ ...errors, Redlock: Original }, () => new Original([client()]));
  });

  test("quit() closes the client, too", async () => {
    const redis = client();
    const redlock = new Redlock([redis]);
    await (await redlock.acquire([newKey()], LONG_MS)).release();
    await redlock.quit();
    await until(() => redis.status === "end");
    expect(await rejection(redlock.acquire([newKey()], LONG_MS, ONCE))).toMatchObject({
      cause: { code: "Aborted" },
    });
  });

  test("a URL is enough", async () => {
    const redlock = new Redlock([server.url]);
    await (await redlock.acquire([newKey()], LONG_MS)).release();
    await redlock.quit();
  });

  test("nobody excludes locks of redlock itself, and whoever takes both is excluded by either", async () => {
    const resources = [newKey()];
    const [theirs, mine] = [new original.default([client()]), new Redlock([server.url])];
    const both = async (): Promise<boolean> =>
      await theirs.using(resources, 5_000, ONCE, async () =>
        mine.using(resources, 5_000, ONCE, async () => await Promise.resolve(true)),
      );
    const [old, neu] = [
      await theirs.acquire(resources, LONG_MS),
      await mine.acquire(resources, LONG_MS),
    ];
    await old.release();
    expect(await rejection(both())).toBeInstanceOf(ExecutionError);
    await neu.release();
    const again = await theirs.acquire(resources, LONG_MS);
    expect(await rejection(both())).toBeInstanceOf(original.ExecutionError);
    await again.release();
    expect(await both()).toBe(true);
    await mine.quit();
  });
});

test("wrong arguments are refused, and named", async () => {
  const backend = createTestBackend();
  const wrong: [unknown, unknown, RegExp][] = [
    [[], {}, /^clients must have a client/],
    ["redis://localhost", {}, /^clients must be an array/],
    [backend, {}, /^clients must be an array/],
    [["http://localhost"], {}, /^clients\[0\] must be local, or start with/],
    [[backend, backend], {}, /^clients must have one client, and has 2\..*quorum/],
    [[backend], { retryCount: -2 }, /^retryCount must be/],
    [[backend], { retryCount: 1.5 }, /^retryCount must be an integer/],
    [[backend], { mode: "shared" }, /^mode is no setting/],
    [[backend], { driftFactor: 1 }, /^driftFactor must be less than 1/],
    [[backend], { retryCount: Number.NaN }, /^retryCount must be an integer/],
    [[backend], { retryDelay: -1 }, /^retryDelay must be a number/],
    [[backend], { retryJitter: Infinity }, /^retryJitter must be a number/],
    [[backend], "5", /^settings must be an object/],
    [[backend], { firstClientOnly: 1 }, /^firstClientOnly must be a boolean/],
  ];
  for (const [clients, settings, message] of wrong) {
    const error = thrownLockError(() => new Redlock(clients as never, settings as never));
    expect([error.code, error.message]).toEqual([
      "InvalidArgument",
      expect.stringMatching(message) as string,
    ]);
  }
  const acquireScript = (script: string): string => script;
  const scripts = { acquireScript } as never;
  expect(thrownLockError(() => new Redlock([backend], {}, scripts)).message).toBe(
    "scripts cannot be replaced: acquireScript",
  );
  const redlock = new Redlock([backend, createTestBackend()], { firstClientOnly: true });
  expect(redlock.clients.size).toBe(2);
  for (const call of [
    redlock.acquire([], 1_000),
    redlock.acquire("report" as never, 1_000),
    redlock.acquire(["report"], 0),
    redlock.using(["report"], 1_000, {}),
  ]) {
    const error = await rejection(call);
    expect(error).toBeInstanceOf(LockError);
    expect(error).toMatchObject({ code: "InvalidArgument" });
  }
  const lock = new Lock(redlock, ["report"], "0".repeat(32), [], Date.now() + 1_000);
  const ofTime = /^duration is how long the lock lasts, and not when it ends/;
  const ofValue = "lock.value must be that of a lock of this class: redlock's own are others";
  for (const [call, message] of [
    [redlock.acquire(["report", "report"], 1_000), "resources must not name one twice"],
    [redlock.acquire(["a", ""], 1_000), "resources[1] must not be empty"],
    [redlock.acquire([7 as never], 1_000), "resources[0] must be a string"],
    [
      redlock.acquire(["k".repeat(513)], 1_000),
      "resources[0] exceeds maximum length of 512 bytes after normalization",
    ],
    [redlock.acquire(["a"], Number.MAX_SAFE_INTEGER), /^duration must not exceed \d+$/],
    [redlock.acquire(["a"], Date.now() + 30_000), ofTime],
    [redlock.using(["a"], Date.now() + 30_000, () => Promise.resolve()), ofTime],
    [lock.extend(Date.now() + 30_000), ofTime],
    [redlock.acquire(Array<string>(101).fill("a"), 1_000), "resources must not be more than 100"],
    [lock.extend(1_000), ofValue],
    [redlock.release(new Lock(redlock, ["a"], "b", [], 0)), ofValue],
  ] as const) {
    const error = (await rejection(call)) as LockError;
    expect(error.code).toBe("InvalidArgument");
    expect(error.message).toMatch(message);
  }
});

test("settings that are nothing are none, as in redlock", async () => {
  const backend = createTestBackend();
  const defaults = new Redlock([backend]).settings;
  for (const [settings, scripts] of [
    [null, undefined],
    [{}, {}],
    [{ retryCount: null, retryDelay: undefined, firstClientOnly: null }, null],
    [{ retryCount: undefined }, { acquireScript: undefined, other: 1 }],
  ]) {
    const redlock = new Redlock([backend], settings as never, scripts as never);
    expect(redlock.settings).toEqual(defaults);
  }
  const redlock = new Redlock([backend], { retryCount: Infinity });
  expect(redlock.settings.retryCount).toBe(Infinity);
  for (const none of [null, undefined, {}, { retryCount: null }] as never[]) {
    const resources = [newKey()];
    const lock = await redlock.acquire(resources, LONG_MS, none);
    const extended = await redlock.extend(lock, LONG_MS, none);
    await redlock.release(extended, none);
    expect(await redlock.using(resources, LONG_MS, none, async () => await settled(42))).toBe(42);
  }
});

test("a setting that is a text is told of once, and ignored", async () => {
  const warned = new Promise<Error & { code?: string }>((resolve) => {
    process.once("warning", resolve);
  });
  const backend = createTestBackend();
  const text = { automaticExtensionThreshold: "100" } as never;
  expect(new Redlock([backend], text).settings.automaticExtensionThreshold).toBe(500);
  const { message, code } = await warned;
  expect(message).toBe(
    "automaticExtensionThreshold of Redlock is a string, and is ignored: give a number",
  );
  expect(code).toBe("SYNCGUARD_IGNORED_SETTING");
});

test("extend() is tried again while the store cannot be reached, as the settings say", async () => {
  const backend = createTestBackend();
  const redlock = new Redlock([backend], { retryDelay: 1, retryJitter: 0, retryCount: 3 });
  const told: unknown[] = [];
  redlock.on("error", (error) => told.push(error));
  const lock = await redlock.acquire([newKey()], LONG_MS);
  backend.faults.failNext("extend", "ServiceUnavailable", 3);
  const extended = await lock.extend(2 * LONG_MS);
  expect(extended.expiration).toBeGreaterThan(Date.now() + LONG_MS);
  expect(told).toEqual([]);
  backend.faults.failNext("extend", "ServiceUnavailable", 4);
  const error = (await rejection(extended.extend(LONG_MS))) as Error;
  expect(error.cause).toMatchObject({ code: "ServiceUnavailable" });
  expect(told).toEqual([error.cause]);
  backend.faults.failNext("extend", "AuthFailed", 1);
  expect(await rejection(extended.extend(LONG_MS))).toMatchObject({
    cause: { code: "AuthFailed" },
  });
});

async function settled<T>(value: T): Promise<T> {
  return await Promise.resolve(value);
}

test("a store that fails is no locked resource", async () => {
  const backend = createTestBackend();
  backend.faults.goDown("AuthFailed");
  const redlock = new Redlock([backend]);
  const lock = new Lock(redlock, ["report"], "A".repeat(22), [], Date.now() + 1_000);
  for (const call of [redlock.acquire(["report"], 1_000), lock.extend(1_000), lock.release()]) {
    const error = (await rejection(call)) as InstanceType<typeof ExecutionError>;
    expect(error).toBeInstanceOf(ExecutionError);
    expect(error.cause).toMatchObject({ code: "AuthFailed" });
    const [stats] = await Promise.all(error.attempts);
    expect([...(stats?.votesAgainst.values() ?? [])]).toEqual([error.cause]);
    expect(error.cause).not.toBeInstanceOf(ResourceLockedError);
  }
});
