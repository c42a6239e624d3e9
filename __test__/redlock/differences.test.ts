/** The table "What differs" of docs/redlock.md: each row has a test, of redlock itself and of this package. */

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Cluster, Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import * as ours from "syncguard/redlock";
import { createTestBackend } from "syncguard/testing";
import { root } from "../package/installed.js";
import { rejection } from "../support/errors";
import { type RedisServer, startRedis } from "../support/redis";
import { startRedisCluster } from "../support/redis-cluster";
import { newKey } from "../support/suite";
import { until } from "../support/until";

const { Redlock } = ours;
type ExecutionError = ours.ExecutionError;
/** The library itself, where the benchmarks have it. */
const original = createRequire(join(root, "bench/alternatives/package.json"))("redlock") as Omit<
  typeof ours,
  "Redlock"
> & { default: typeof ours.Redlock };

const ONCE = { retryCount: 0 };
const FEW = { retryCount: 2, retryDelay: 20, retryJitter: 0 };
const LONG_MS = 60_000;

let server: RedisServer;
const clients: Redis[] = [];
function client(): Redis {
  const redis = new Redis(server.url);
  clients.push(redis);
  return redis;
}
beforeAll(async () => {
  server = await startRedis();
});
afterAll(async () => {
  for (const redis of clients) redis.disconnect();
  await server.stop();
});

type Settings = ours.RedlockSettings;
const theirs = (settings: Settings = ONCE) => new original.default([client()], settings);
const mine = (settings: Settings = ONCE) => new Redlock([client()], settings);
/** The same with either; theirs come first. */
async function both<T>(run: (create: typeof mine) => Promise<T>): Promise<[T, T]> {
  return [await run(theirs), await run(mine)];
}

function listening(redlock: ours.Redlock): unknown[] {
  const told: unknown[] = [];
  redlock.on("error", (error) => told.push(error));
  return told;
}

/** Deletes what either library has stored. */
async function putOut(resource: string): Promise<void> {
  const redis = client();
  const keys = await redis.keys(`*${resource}*`);
  await redis.del(...keys.filter((key) => !key.includes("fence:")));
}

type Waiting = (told: unknown[]) => boolean | Promise<boolean>;

function thrown(run: () => unknown): unknown {
  try {
    return run();
  } catch (error) {
    return error;
  }
}

const rows: Record<string, () => Promise<void>> = {
  clients: async () => {
    // On one server, but with keys of their own.
    const two = [client(), client()];
    await two[1]?.select(1);
    const lock = await new original.default(two, ONCE).acquire([newKey()], LONG_MS);
    expect(await Promise.all(lock.attempts)).toMatchObject([{ membershipSize: 2, quorumSize: 2 }]);
    expect(thrown(() => new Redlock(two))).toMatchObject({ code: "InvalidArgument" });
  },

  connections: async () => {
    const seen = await both(async (create) => {
      const redlock = create();
      const [redis] = redlock.clients as Set<Redis>;
      const names = ["eval", "evalsha"] as const;
      const calls = names.map((name) => vi.spyOn(redis as Redis, name));
      await redlock.acquire([newKey()], LONG_MS);
      await redlock.quit();
      await until(() => redis?.status === "end");
      return calls.some(({ mock }) => mock.calls.length > 0);
    });
    expect(seen).toEqual([true, false]);
  },

  waiting: async () => {
    const waits = async (create: typeof mine, retryDelay: number, isWaiting: Waiting) => {
      const resources = [newKey()];
      const lock = await create().acquire(resources, LONG_MS);
      const redlock = create({ retryCount: 1, retryDelay, retryJitter: 0 });
      const told = listening(redlock);
      const granted = vi.fn();
      const waiting = redlock.acquire(resources, LONG_MS).then(granted);
      await until(() => isWaiting(told));
      await lock.release();
      return { granted, waiting };
    };
    const first = await waits(theirs, 2_000, ({ length }) => length > 0);
    await sleep(200);
    expect(first.granted).not.toHaveBeenCalled();
    await first.waiting;
    // Longer than a test may take.
    const channels = async () => (await client().pubsub("CHANNELS", "*")).length > 0;
    await (
      await waits(mine, 600_000, channels)
    ).waiting;
  },

  "errors while waiting": async () => {
    const redis = client();
    await redis.config("SET", "maxmemory", "1");
    const error = await rejection(theirs(FEW).acquire([newKey()], LONG_MS));
    await redis.config("SET", "maxmemory", "0");
    expect((error as ExecutionError).attempts).toHaveLength(3);
    const backend = createTestBackend();
    const redlock = new Redlock([backend], FEW);
    backend.faults.failNext("acquire", "AuthFailed");
    const refused = redlock.acquire([newKey()], LONG_MS);
    expect(await rejection(refused)).toMatchObject({ cause: { code: "AuthFailed" } });
    backend.faults.failNext("acquire", "ServiceUnavailable", 2);
    await redlock.acquire([newKey()], LONG_MS);
  },

  "the end of a lock": async () => {
    const [lastsMs, marginMs] = [300, 1_000];
    /** Whether it is free at its end; `undefined` if this was asked too late to say. */
    const isFree = async (create: typeof mine): Promise<boolean | undefined> => {
      const resources = [newKey()];
      // The server has granted it at some moment between these two.
      const askedMs = Date.now();
      await create().acquire(resources, lastsMs);
      const endMs = Date.now() + lastsMs + 20;
      await until(() => Date.now() > endMs);
      const again = await create()
        .acquire(resources, LONG_MS, ONCE)
        .catch(() => undefined);
      return Date.now() < askedMs + lastsMs + marginMs ? again !== undefined : undefined;
    };
    const seen = await both(async (create) => {
      let free: boolean | undefined;
      while (free === undefined) free = await isFree(create);
      return free;
    });
    expect(seen).toEqual([true, false]);
  },

  "`expiration` after a wait": async () => {
    const seen = await both(async (create) => {
      const resources = [newKey()];
      await create().acquire(resources, 1_000);
      const [redlock, startMs] = [create({ retryCount: -1, retryDelay: 50 }), Date.now()];
      const lock = await redlock.acquire(resources, 10_000);
      // Without driftFactor: it is 102 ms.
      return lock.expiration > startMs + 10_000;
    });
    expect(seen).toEqual([false, true]);
  },

  '`"error"` events': async () => {
    const seen = await both(async (create) => {
      const resources = [newKey()];
      await create().acquire(resources, LONG_MS);
      const redlock = create(FEW);
      const told = listening(redlock);
      await rejection(redlock.acquire(resources, LONG_MS));
      return told.length;
    });
    expect(seen[0]).toBeGreaterThanOrEqual(3);
    expect(seen[1]).toBe(1);
    // For one that is lost: using.test.ts, "one error event for one loss".
  },

  "`attempts`": async () => {
    const seen = await both(async (create) => {
      const resources = [newKey()];
      await create().acquire(resources, LONG_MS);
      const error = await rejection(create(FEW).acquire(resources, LONG_MS));
      return (error as ExecutionError).attempts.length;
    });
    expect(seen).toEqual([3, 1]);
  },

  "`release()` and `extend()` of a lock that is gone": async () => {
    const seen = await both(async (create) => {
      const [redlock, resource] = [create(FEW), newKey()];
      const lock = await redlock.acquire([resource], LONG_MS);
      await putOut(resource);
      const errors = [await rejection(lock.extend(LONG_MS)), await rejection(lock.release())];
      return errors.map((error) => {
        expect((error as Error).name).toBe("ExecutionError");
        return (error as ExecutionError).attempts.length;
      });
    });
    expect(seen).toEqual([
      [3, 3],
      [1, 1],
    ]);
  },

  "the settings of `release()`": async () => {
    const [redlock, resource] = [theirs(ONCE), newKey()];
    const lock = await redlock.acquire([resource], LONG_MS);
    await putOut(resource);
    const error = await rejection(redlock.release(lock, FEW));
    expect((error as ExecutionError).attempts).toHaveLength(3);
    const own = await mine().acquire([resource], LONG_MS);
    const wrong = own.redlock.release(own, { retryCount: 1.5 });
    expect(await rejection(wrong)).toMatchObject({ code: "InvalidArgument" });
    await own.redlock.release(own, ONCE);
  },

  "`using()`, the routine throws and the lock was lost": async () => {
    const seen = await both(async (create) => {
      const resource = newKey();
      const using = create().using([resource], 5_000, async () => {
        await putOut(resource);
        throw new TypeError("mine");
      });
      return ((await rejection(using)) as Error).name;
    });
    expect(seen).toEqual(["ExecutionError", "TypeError"]);
  },

  "`using()`, the release fails": async () => {
    const failing = theirs();
    const [redis] = failing.clients as Set<Redis>;
    const using = failing.using([newKey()], 5_000, async () => {
      redis?.disconnect();
      return await Promise.resolve(42);
    });
    expect(await rejection(using)).toBeInstanceOf(original.ExecutionError);
    const backend = createTestBackend();
    const redlock = new Redlock([backend]);
    const told = listening(redlock);
    const result = redlock.using([newKey()], 5_000, async () => {
      backend.faults.failNext("release", "AuthFailed");
      return await Promise.resolve(42);
    });
    expect(await result).toBe(42);
    expect(told).toMatchObject([{ code: "AuthFailed" }]);
    const lost = await both(async (create) => {
      const resource = newKey();
      return await rejection(create().using([resource], 5_000, () => putOut(resource)));
    });
    expect(lost.map((error) => (error as Error).name)).toEqual([
      "ExecutionError",
      "ExecutionError",
    ]);
  },

  "heartbeats of `using()`": async () => {
    const seen = await both(async (create) => {
      const redlock = create({ ...ONCE, automaticExtensionThreshold: 2_500 });
      const extend = vi.spyOn(redlock, "extend");
      const resources = [newKey()];
      const other = create();
      await redlock.using(resources, 3_000, async () => {
        const startMs = Date.now();
        await until(() => extend.mock.calls.length > 0 || Date.now() > startMs + 4_200);
        expect(await rejection(other.acquire(resources, LONG_MS))).toHaveProperty("attempts");
      });
      return extend.mock.calls.length > 0;
    });
    expect(seen).toEqual([true, false]);
  },

  "`signal.reason`": async () => {
    const seen = await both(async (create) => {
      const resource = newKey();
      const redlock = create({ ...ONCE, automaticExtensionThreshold: 900 });
      const names: string[] = [];
      const using = redlock.using([resource], 1_000, async (signal) => {
        await putOut(resource);
        await until(() => signal.aborted);
        names.push((signal.reason as Error).name, (signal.error as Error).name);
      });
      await rejection(using);
      return names;
    });
    expect(seen).toEqual([
      ["AbortError", "ExecutionError"],
      ["LockError", "ExecutionError"],
    ]);
  },

  "wrong arguments": async () => {
    const fails = async (resources: unknown, duration = LONG_MS, create = theirs) =>
      await create()
        .acquire(resources as string[], duration)
        .then(
          () => "a lock",
          (error: unknown) => (error as { code?: string }).code ?? (error as Error).name,
        );
    const twice = newKey();
    const given = [[], "report", [twice, twice]];
    expect(await Promise.all(given.map((one) => fails(one)))).toEqual(given.map(() => "a lock"));
    expect(await fails([newKey()], 0.5)).toBe("Error");
    for (const one of given) expect(await fails(one, LONG_MS, mine)).toBe("InvalidArgument");
    expect(await fails([newKey()], 0.5, mine)).toBe("InvalidArgument");
  },

  resources: async () => {
    const many = Array.from({ length: 101 }, newKey);
    await (await theirs().acquire(many, LONG_MS)).release();
    await (await mine().acquire(many.slice(1), LONG_MS)).release();
    await (await theirs().acquire(["k".repeat(513)], LONG_MS)).release();
    await (await mine().acquire(["k".repeat(512)], LONG_MS)).release();
    for (const refused of [many, ["k".repeat(513)]]) {
      const error = await rejection(mine().acquire(refused, LONG_MS));
      expect(error).toMatchObject({ code: "InvalidArgument" });
    }
    const [composed, decomposed] = ["caf\u00e9", "cafe\u0301"];
    const seen = await both(async (create) => {
      const one = await create().acquire([composed], LONG_MS);
      const other = await create()
        .acquire([decomposed], LONG_MS)
        .catch(() => undefined);
      await one.release();
      await other?.release();
      return other === undefined;
    });
    expect(seen).toEqual([false, true]);
  },

  "settings that are no numbers": async () => {
    const text = { retryCount: "5" } as never;
    const counts = await both((create) => Promise.resolve(create(text).settings.retryCount));
    expect(counts).toEqual([10, 10]);
    const resources = [newKey()];
    await theirs().acquire(resources, LONG_MS);
    const quick = { retryCount: "5", retryDelay: 0, retryJitter: 0 } as never;
    const error = await rejection(theirs().acquire(resources, LONG_MS, quick));
    expect((error as ExecutionError).attempts).toHaveLength(51);
    const backend = createTestBackend();
    backend.faults.failNext("acquire", "ServiceUnavailable", 2);
    const own = new Redlock([backend], { retryCount: 1, retryDelay: 0, retryJitter: 0 });
    expect(await rejection(own.acquire(resources, LONG_MS, quick))).toHaveProperty("attempts");
    await own.acquire(resources, LONG_MS, { retryCount: null } as never);
  },

  "settings out of range": async () => {
    const half = { retryCount: 1.5 };
    expect(theirs(half).settings.retryCount).toBe(1.5);
    expect(thrown(() => mine(half))).toMatchObject({ code: "InvalidArgument" });
    await Promise.resolve();
  },

  "several resources in a Cluster": async () => {
    const cluster = await startRedisCluster({ replicas: false });
    const nodes = cluster.nodes.map(({ port }) => ({ host: "127.0.0.1", port }));
    const redis = new Cluster(nodes);
    try {
      const resources = ["a", "b", "c"];
      const redlock = new original.default([redis], ONCE);
      const told = listening(redlock) as Error[];
      await rejection(redlock.acquire(resources, LONG_MS));
      expect(told[0]?.message).toMatch(/CROSSSLOT|slot/i);
      const own = new Redlock([redis], ONCE);
      await (await own.acquire(resources, LONG_MS)).release();
      await own.quit();
    } finally {
      redis.disconnect();
      await cluster.stop();
    }
  },

  "`lock.value`": async () => {
    const [one, other] = await both((create) => create().acquire([newKey(), newKey()], LONG_MS));
    expect(one.value).toMatch(/^[0-9a-f]{32}$/);
    expect(other.value).toMatch(/^[\w-]{22},[\w-]{22}$/);
    const foreign = new ours.Lock(mine(), other.resources, one.value, [], Date.now() + LONG_MS);
    expect(await rejection(foreign.extend(LONG_MS))).toMatchObject({ code: "InvalidArgument" });
    expect(await rejection(foreign.release())).toMatchObject({ code: "InvalidArgument" });
  },

  messages: async () => {
    const seen = await both(async (create) => {
      const resources = [newKey()];
      await create().acquire(resources, LONG_MS);
      const redlock = create();
      const told = listening(redlock) as Error[];
      const { message } = (await rejection(redlock.acquire(resources, LONG_MS))) as Error;
      return [message, told[0]?.message];
    });
    expect(seen[0][0]).toBe(seen[1][0]);
    expect(seen.map(([, message]) => message)).toEqual([
      "The operation was applied to: 0 of the 1 requested resources.",
      "the resource is locked",
    ]);
  },

  "the third argument": async () => {
    const acquireScript = vi.fn((script: string) => script);
    const scripts = { acquireScript } as never;
    expect(new original.default([client()], {}, scripts)).toHaveProperty("scripts");
    expect(acquireScript).toHaveBeenCalledOnce();
    expect(thrown(() => new Redlock([client()], {}, scripts))).toMatchObject({
      code: "InvalidArgument",
    });
    expect(new Redlock([client()], {}, {})).not.toHaveProperty("scripts");
    await Promise.resolve();
  },
};

describe("what differs from redlock", () => {
  test.each(Object.entries(rows))("%s", async (_, run) => {
    await run();
  });

  test("every row of the table has its test, and every test its row", () => {
    const page = readFileSync(join(root, "docs/redlock.md"), "utf8");
    const section = page.split("## What differs")[1]?.split("\n## ")[0] ?? "";
    const named = [...section.matchAll(/^\| (.*?) +\|/gm)].map(([, name]) => name);
    expect(named.slice(2).sort()).toEqual(Object.keys(rows).sort());
  });
});
