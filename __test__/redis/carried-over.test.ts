/** Clients whose settings a native connection uses: only such as are what their class makes, and as they are at that moment. */

import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { createClient as createClient4 } from "redis-4";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { withTelemetry } from "syncguard/common";
import { createRedisBackend, type RedisClient } from "syncguard/redis";
import { thrownLockError } from "../support/errors";
import { type RedisServer, startRedis } from "../support/redis";
import { newKey } from "../support/suite";
import { until } from "../support/until";

let server: RedisServer;
beforeAll(async () => {
  server = await startRedis();
});
afterAll(async () => {
  await server.stop();
});

const client4 = createClient4 as unknown as typeof createClient;

/** Clients that are connected, and what ends them. */
const OPEN: Record<
  string,
  (url: string) => Promise<RedisClient & { select: (db: number) => unknown }>
> = {
  ioredis: async (url) => {
    const client = new Redis(url);
    client.on("error", () => undefined);
    onTestFinished(() => client.disconnect());
    await once(client, "ready");
    return client;
  },
  "node-redis 5": async (url) => {
    const client = createClient({ url });
    client.on("error", () => undefined);
    await client.connect();
    onTestFinished(() => client.destroy());
    return client;
  },
  "node-redis 4": async (url) => {
    const client = client4({ url }) as unknown as ReturnType<typeof createClient4>;
    client.on("error", () => undefined);
    await client.connect();
    onTestFinished(() => client.disconnect());
    return client;
  },
};

/** The numbers of the databases that have keys with that text in their names. */
async function databasesWith(text: string): Promise<number[]> {
  const found: number[] = [];
  for (let number = 0; number < 4; number += 1) {
    await server.admin.select(number);
    const keys = await server.admin.keys("*");
    if (keys.some((key) => key.includes(text))) found.push(number);
  }
  await server.admin.select(0);
  return found;
}

describe.each(Object.entries(OPEN))("%s", (_, open) => {
  test("behind a Proxy is driven, so that what the Proxy does to keys is done", async () => {
    const client = await open(server.url);
    let calls = 0;
    const tenant = new Proxy(client, {
      get: (target, name) => {
        const value = Reflect.get(target, name) as unknown;
        if (name === "eval") {
          return (script: string, ...rest: unknown[]) => {
            calls += 1;
            const [first, ...others] = rest as [number | { keys: string[] }, ...string[]];
            const prefixed =
              typeof first === "number"
                ? [first, ...others.map((arg, at) => (at < first ? `tenant:${arg}` : arg))]
                : [{ ...first, keys: first.keys.map((key) => `tenant:${key}`) }];
            return (value as (...args: unknown[]) => unknown).call(target, script, ...prefixed);
          };
        }
        return typeof value === "function" ? (value.bind(target) as unknown) : value;
      },
    });
    const key = newKey();
    const backend = createRedisBackend(tenant);
    const held = await backend.lock(key, { ttlMs: 60_000 });
    expect(calls).toBeGreaterThan(0);
    expect(await server.admin.keys(`tenant:*${key}*`)).not.toEqual([]);
    expect(await server.admin.keys(`syncguard:*${key}*`)).toEqual([]);
    await held.release();
    await backend.close();
    const error = thrownLockError(() => createRedisBackend(tenant, { transport: "native" }));
    expect(error).toMatchObject({ code: "InvalidArgument" });
    expect(error.message).toContain("which go through a Proxy");
  });

  test("that has selected another database locks there", async () => {
    const client = await open(server.url);
    await client.select(2);
    const key = newKey();
    const native = createRedisBackend(client, { transport: "native" });
    const driven = createRedisBackend(client, { transport: "client" });
    const held = await native.lock(key, { ttlMs: 60_000 });
    expect(await databasesWith(key)).toEqual([2]);
    expect((await driven.acquire({ key, ttlMs: 60_000 })).ok).toBe(false);
    await held.release();
    await Promise.all([native.close(), driven.close()]);
  });

  test("that selects another database later locks there from its next connection on", async () => {
    const client = await open(server.url);
    const backend = createRedisBackend(client, { transport: "native" });
    const [first, second] = [newKey(), newKey()];
    await backend.lock(first, { ttlMs: 60_000 });
    expect(await databasesWith(first)).toEqual([0]);
    await client.select(3);
    await server.admin.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
    await until(async () => {
      try {
        return (await backend.acquire({ key: second, ttlMs: 60_000 })).ok;
      } catch {
        return false; // the connection has just ended
      }
    });
    expect(await databasesWith(second)).toEqual([3]);
    await backend.close();
    // A client that comes back selects its database anew, and for ioredis nobody hears when that fails at its end.
    await client.select(3);
  });
});

describe("a password that is changed while the process runs", () => {
  test.each([
    ["ioredis", (password: string) => new Redis(server.port, { password, lazyConnect: true })],
    ["node-redis", (password: string) => createClient({ url: server.url, password })],
  ])("is used for the next connection: %s", async (_, create) => {
    await server.admin.call("ACL", "SETUSER", "default", "resetpass", ">before");
    onTestFinished(async () => {
      await server.admin.call("ACL", "SETUSER", "default", "nopass");
    });
    const client = create("before");
    const backend = createRedisBackend(client, { transport: "native" });
    await (await backend.lock(newKey())).release();
    await server.admin.call("ACL", "SETUSER", "default", "resetpass", ">after");
    (client.options as { password: string }).password = "after";
    await server.admin.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
    await until(async () => {
      try {
        return (await backend.acquire({ key: newKey(), ttlMs: 60_000 })).ok;
      } catch (error) {
        expect(error).toMatchObject({ code: "ServiceUnavailable" });
        return false;
      }
    });
    await backend.close();
  });
});

test("a lock outlasts a lost connection while JavaScript cannot say how to log in", async () => {
  const client = await OPEN.ioredis!(server.url);
  const backend = createRedisBackend(client, { transport: "native" });
  const watcher = createRedisBackend(server.url);
  const key = newKey();
  const held = await backend.lock(key, { ttlMs: 4_000, autoExtend: { everyMs: 500 } });
  await server.admin.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
  // Blocks the thread for longer than the lock lasts without extensions.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 6_000);
  expect((await watcher.acquire({ key, ttlMs: 1_000 })).ok).toBe(false);
  expect(held.signal.aborted).toBe(false);
  expect(await held.release()).toEqual({ ok: true });
  await Promise.all([backend.close(), watcher.close()]);
});

describe("tracing agents only watch", () => {
  /** As `@opentelemetry/instrumentation` and the package shimmer do it. */
  const shimmer = (original: object, wrapped: object): object =>
    Object.defineProperties(wrapped, {
      __original: { value: original, configurable: true },
      __unwrap: { value: () => undefined, configurable: true },
      __wrapped: { value: true, configurable: true },
    });
  /** As Datadog's tracer does it. */
  const inheriting = (original: object, wrapped: object): object =>
    Object.setPrototypeOf(wrapped, original) as object;
  const forgetting = (_: object, wrapped: object): object => wrapped;

  test.each([
    ["OpenTelemetry", shimmer, "settings"],
    ["Datadog", inheriting, "settings"],
    ["a wrapper that keeps nothing", forgetting, "obstacle"],
  ])("%s", (_, mark, outcome) => {
    const before = Object.getOwnPropertyDescriptors(Redis.prototype);
    onTestFinished(() => {
      for (const name of ["sendCommand", "connect"] as const)
        Object.defineProperty(Redis.prototype, name, before[name]);
    });
    for (const name of ["sendCommand", "connect"] as const) {
      for (let agents = 0; agents < 2; agents += 1) {
        const original = Redis.prototype[name] as (...args: unknown[]) => unknown;
        const wrapped = function (this: unknown, ...args: unknown[]) {
          return original.apply(this, args);
        };
        Redis.prototype[name] = mark(original, wrapped) as never;
      }
    }
    const client = new Redis({ lazyConnect: true });
    const create = () => createRedisBackend(client, { transport: "native" });
    const way = outcome === "settings" ? "native" : "client";
    const { transport } = createRedisBackend(client);
    expect(transport?.way).toBe(way);
    expect(transport?.reason).toContain(way === "native" ? "settings" : "connect, which is not");
    if (outcome === "settings") expect(create).not.toThrow();
    else expect(thrownLockError(create).message).toContain("connect, which is not its class's,");
  });
});

test("a backend tells which way it takes, and why, and so do its diagnostics", async () => {
  const plain = new Redis(server.port);
  onTestFinished(() => plain.disconnect());
  const WAYS = [
    [createRedisBackend(server.url), "native", "by the URL or options that were given"],
    [createRedisBackend(plain), "native", "by the settings read from the client"],
    [createRedisBackend(plain, { transport: "client" }), "client", 'transport is "client"'],
    [createRedisBackend(new Proxy(plain, {})), "client", "go through a Proxy"],
  ] as const;
  const seen: unknown[] = [];
  const hear = (message: unknown): void => {
    seen.push((message as { transport: unknown }).transport);
  };
  subscribe("syncguard:isLocked", hear);
  onTestFinished(() => {
    unsubscribe("syncguard:isLocked", hear);
  });
  for (const [backend, way, reason] of WAYS) {
    const told = withTelemetry(backend, { onEvent: () => undefined }).transport;
    expect(told).toBe(backend.transport);
    expect(told).toMatchObject({ way, reason: expect.stringContaining(reason) as string });
    expect(told?.reason).not.toContain("127.0.0.1");
    await backend.isLocked({ key: "k" });
    await backend.close();
  }
  expect(seen).toEqual(WAYS.map(([, way]) => way));
});
