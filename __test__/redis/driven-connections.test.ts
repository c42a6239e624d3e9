/** Clients that are driven, and what they show of their connections. */

import { errorMonitor } from "node:events";
import { Cluster, Redis } from "ioredis";
import { createClient, createClientPool, createCluster, createSentinel } from "redis";
import { createClient as createClient4, createCluster as createCluster4 } from "redis-4";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { createRedisBackend, type RedisClient } from "syncguard/redis";
import { type SentinelSet, startRedis, startSentinelSet } from "../support/redis";
import { type RedisCluster, startRedisCluster } from "../support/redis-cluster";
import { type Backend, newKey } from "../support/suite";
import { until } from "../support/until";

type Client = RedisClient & {
  on: (event: "error", listener: (error: unknown) => void) => unknown;
  eventNames: () => (string | symbol)[];
  listenerCount: (event: string | symbol) => number;
};

const CLIENTS: Readonly<Record<string, (url: string) => Promise<Client>>> = {
  ioredis: async (url) => {
    const client = new Redis(url, { retryStrategy: () => 20 });
    onTestFinished(() => client.disconnect());
    await client.ping();
    return client;
  },
  "node-redis": async (url) => {
    const client = createClient({ url, socket: { reconnectStrategy: () => 20 } });
    onTestFinished(() => client.destroy());
    await client.connect();
    return client;
  },
  "node-redis 4": async (url) => {
    const client = createClient4({ url, socket: { reconnectStrategy: () => 20 } });
    onTestFinished(() => client.disconnect());
    await client.connect();
    return client;
  },
  "a pool of node-redis": async (url) => {
    const client = createClientPool({ url, socket: { reconnectStrategy: () => 20 } });
    onTestFinished(() => client.destroy());
    await client.connect();
    return client;
  },
};

/** Locks whose loss is noticed. The next heartbeat of the second is due after a hundred seconds. */
const hold = async (backend: Backend) => [
  await backend.lock(newKey(), { ttlMs: 300_000 }),
  await backend.lock(newKey(), { ttlMs: 300_000, autoExtend: true }),
];

/** How many listeners a client has for each event that there is. */
function listeners(client: Client): Record<string, number> {
  // One stays where Node.js would part the client from its emitter.
  const isSome = (event: unknown): boolean => typeof event === "string" || event === errorMonitor;
  const names = client.eventNames().filter(isSome);
  const counts = names.map((event) => [event, client.listenerCount(event)] as const);
  return Object.fromEntries(counts);
}

test.each(Object.keys(CLIENTS))(
  "%s connects again, and all that is held is asked after",
  async (name) => {
    const server = await startRedis();
    onTestFinished(server.stop);
    const client = await CLIENTS[name]!(server.url);
    client.on("error", () => undefined);
    const before = listeners(client);
    const options = { transport: "client", onLost: () => undefined } as const;
    // So many listeners for one event would be warned of.
    const backends = Array.from({ length: 11 }, () => createRedisBackend(client, options));
    expect(Object.values(listeners(client)).every((count) => count < 5)).toBe(true);
    const backend = backends[0]!;
    const held = await hold(backend);
    await server.kill();
    await server.start();
    // Nobody calls.
    await until(() => held.every(({ signal }) => signal.aborted));
    for (const { signal } of held) expect(signal.reason).toMatchObject({ code: "LockLost" });
    for (const each of backends) await each.close();
    expect(listeners(client)).toEqual(before);
  },
);

test.each(Object.keys(CLIENTS))(
  "%s is heard by its user when no backend listens any more",
  async (name) => {
    const server = await startRedis();
    onTestFinished(server.stop);
    const client = await CLIENTS[name]!(server.url);
    await createRedisBackend(client, { transport: "client" }).close();
    const errors: unknown[] = [];
    client.on("error", (error) => errors.push(error));
    await server.kill();
    await until(() => errors.length > 0);
  },
);

describe("a node of a cluster that comes back empty", () => {
  let cluster: RedisCluster;
  beforeAll(async () => {
    cluster = await startRedisCluster({ replicas: false });
  });
  afterAll(() => cluster.stop());

  const CLUSTERS: Readonly<Record<string, () => Promise<Client>>> = {
    ioredis: async () => {
      const nodes = cluster.nodes.map(({ port }) => ({ host: "127.0.0.1", port }));
      const client = new Cluster(nodes, { slotsRefreshInterval: 50 });
      onTestFinished(() => client.disconnect());
      client.on("error", () => undefined);
      await client.set("k", "v");
      return client;
    },
    "node-redis": async () => {
      const client = createCluster({
        rootNodes: cluster.nodes.map(({ url }) => ({ url })),
        defaults: { socket: { reconnectStrategy: () => 20 } },
      });
      onTestFinished(() => client.destroy());
      client.on("error", () => undefined);
      await client.connect();
      return client;
    },
    "node-redis 4": async () => {
      const client = createCluster4({
        rootNodes: cluster.nodes.map(({ url }) => ({ url })),
        defaults: { socket: { reconnectStrategy: () => 20 } },
      });
      onTestFinished(() => client.disconnect());
      client.on("error", () => undefined);
      await client.connect();
      return client;
    },
  };

  test.each(Object.keys(CLUSTERS))("through %s", async (name) => {
    const client = await CLUSTERS[name]!();
    const before = listeners(client);
    const backend = createRedisBackend(client, { transport: "client", onLost: () => undefined });
    const direct = createRedisBackend(cluster.url);
    onTestFinished(direct.close);
    // No node has none of them.
    const held = await Promise.all(
      Array.from({ length: 60 }, async (_, index) => {
        const key = newKey();
        const options = { ttlMs: 300_000, autoExtend: index % 2 === 0 };
        const lock = await backend.lock(key, options);
        // Somebody would notice its loss.
        return { key, lock, signal: lock.signal };
      }),
    );
    const [gone] = cluster.nodes;
    await gone!.kill();
    await gone!.start();
    const areTold = async (): Promise<boolean> => {
      const told = held.map(async ({ key, signal }) => {
        const isHeld = await direct.isLocked({ key }).catch(() => undefined);
        return isHeld === !signal.aborted;
      });
      return (await Promise.all(told)).every(Boolean);
    };
    // Nobody calls through the client.
    await until(areTold);
    const lost = held.filter(({ lock }) => lock.signal.aborted).length;
    expect(lost).toBeGreaterThan(0);
    expect(lost).toBeLessThan(held.length);
    await backend.close();
    expect(listeners(client)).toEqual(before);
  });
});

async function sentinelSet(): Promise<SentinelSet> {
  const set = await startSentinelSet();
  onTestFinished(set.stop);
  return set;
}

async function sentinelClient(set: SentinelSet, passthroughClientErrorEvents: boolean) {
  const client = createSentinel({
    name: "main",
    sentinelRootNodes: [{ host: "127.0.0.1", port: set.sentinel.port }],
    passthroughClientErrorEvents,
  });
  onTestFinished(() => void client.destroy());
  client.on("error", () => undefined);
  await client.connect();
  return client;
}

test("a Sentinel client of node-redis tells of another primary", async () => {
  const set = await sentinelSet();
  const client = await sentinelClient(set, false);
  const before = listeners(client);
  const backend = createRedisBackend(client, { onLost: () => undefined });
  const held = await hold(backend);
  // The replica has not got what the primary says.
  await set.replica.admin.config("SET", "replica-read-only", "no");
  await until(async () => {
    const sizes = [set.primary, set.replica].map(async ({ admin }) => await admin.dbsize());
    const [primary, replica] = await Promise.all(sizes);
    return primary === replica;
  });
  await set.replica.admin.flushall();
  await set.primary.kill();
  // Nobody calls.
  await until(() => held.every(({ signal }) => signal.aborted));
  for (const { signal } of held) expect(signal.reason).toMatchObject({ code: "LockLost" });
  await backend.close();
  expect(listeners(client)).toEqual(before);
});

test("a Sentinel client of node-redis that shows its errors tells that the same primary is back", async () => {
  const set = await sentinelSet();
  const client = await sentinelClient(set, true);
  // It stays the primary.
  await set.sentinel.admin.call("sentinel", "set", "main", "down-after-milliseconds", "600000");
  const backend = createRedisBackend(client, { onLost: () => undefined });
  onTestFinished(backend.close);
  const held = await hold(backend);
  await set.primary.kill();
  await set.primary.start();
  // Nobody calls.
  await until(() => held.every(({ signal }) => signal.aborted));
  for (const { signal } of held) expect(signal.reason).toMatchObject({ code: "LockLost" });
});
