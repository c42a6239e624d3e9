/** `held.eval()` in a Redis Cluster: the keys of a script are beside the lock. */

import { Cluster } from "ioredis";
import { createCluster } from "redis";
import { createCluster as createCluster4 } from "redis-4";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { createRedisBackend, type RedisBackendOptions, type RedisClient } from "syncguard/redis";
import { lockError } from "../support/errors";
import { type RedisCluster, startRedisCluster } from "../support/redis-cluster";
import { newKey } from "../support/suite";

let cluster: RedisCluster;
beforeAll(async () => {
  cluster = await startRedisCluster({ replicas: false });
});
afterAll(async () => {
  await cluster.stop();
});

function ioredis(): RedisClient {
  const startup = cluster.nodes.map(({ port }) => ({ host: "127.0.0.1", port }));
  const client = new Cluster(startup);
  onTestFinished(() => client.disconnect());
  return client;
}

async function nodeRedis(create: typeof createCluster): Promise<RedisClient> {
  const client = create({ rootNodes: cluster.nodes.map(({ url }) => ({ url })) });
  await client.connect();
  onTestFinished(async () => {
    await (client as unknown as { quit: () => Promise<unknown> }).quit();
  });
  return client;
}

type Way = () => Promise<RedisClient> | RedisClient | string;
const WAYS: readonly (readonly [string, Way, RedisBackendOptions])[] = [
  ["a URL", () => cluster.url, {}],
  ["a client of ioredis", ioredis, {}],
  ["through a client of ioredis", ioredis, { transport: "client" }],
  ["through a client of node-redis", () => nodeRedis(createCluster), { transport: "client" }],
  [
    "through a client of node-redis 4",
    () => nodeRedis(createCluster4 as unknown as typeof createCluster),
    { transport: "client" },
  ],
];

const INCR = "return redis.call('INCR', KEYS[1])";

describe.each(WAYS)("eval() in a cluster by %s", (_, open, options) => {
  test("runs beside the lock, and only while it is held", async () => {
    const client = await open();
    for (let round = 0; round < 8; round += 1) {
      const tag = `{${newKey()}}`;
      const backend = createRedisBackend(client, { ...options, keyPrefix: tag });
      onTestFinished(backend.close);
      const counter = `${tag}:counter`;
      const held = await backend.lock("the data", { onLost: () => undefined });
      expect(await held.eval(INCR, { keys: [counter], arguments: ["x"] })).toBe(1);
      expect(await held.eval("return {#KEYS, #ARGV}")).toEqual([0, 0]);
      await backend.forceRelease("the data");
      const next = await backend.lock("the data");
      const error = await lockError(held.eval(INCR, { keys: [counter] }));
      expect(error.code).toBe("LockLost");
      expect(await next.eval(INCR, { keys: [counter] })).toBe(2);
      await next.release();
    }
  });

  test("refuses keys of another hash slot before anything is sent", async () => {
    const backend = createRedisBackend(await open(), options);
    onTestFinished(backend.close);
    await using held = await backend.lock(newKey());
    const error = await lockError(held.eval(INCR, { keys: ["elsewhere"] }));
    expect(error.code).toBe("InvalidArgument");
    expect(error.message).toMatch(/^keys\[0\] is in another hash slot than the lock/);
    expect(error.message).not.toContain("elsewhere");
    expect(await held.eval("return 7")).toBe(7);
  });
});
