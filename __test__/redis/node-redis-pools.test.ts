/** Pools and Sentinel clients of node-redis: docs/redis.md, "Where the server is". */

import { createClientPool, createSentinel } from "redis";
import { describe, expect, onTestFinished, test } from "vitest";
import { createRedisBackend } from "syncguard/redis";
import { thrownLockError } from "../support/errors";
import { plainRedis, startSentinelSet } from "../support/redis";
import { newKey } from "../support/suite";

async function pool() {
  const server = await plainRedis();
  onTestFinished(() => server.stop());
  const client = createClientPool({ url: server.url });
  await client.connect();
  return client;
}

async function sentinel() {
  const set = await startSentinelSet();
  onTestFinished(() => set.stop());
  const sentinelRootNodes = [{ host: "127.0.0.1", port: set.sentinel.port }];
  const client = createSentinel({ name: "main", sentinelRootNodes });
  await client.connect();
  return client;
}

describe.each([
  ["a pool", pool],
  ["a Sentinel client", sentinel],
])("%s of node-redis", (_, connect) => {
  test("is driven by its own eval", async () => {
    const client = await connect();
    onTestFinished(() => void client.destroy());
    const backend = createRedisBackend(client);
    expect(backend.transport).toMatchObject({ way: "client" });
    for (const options of [{ transport: "native" }, { replicas: 1 }] as const) {
      const error = thrownLockError(() => createRedisBackend(client, options));
      expect(error.code).toBe("InvalidArgument");
    }
    const keys = [newKey(), newKey()] as const;
    const held = await backend.lock(keys[0], { ttlMs: 60_000 });
    expect(await held.extend(60_000)).toMatchObject({ ok: true });
    expect(await backend.acquire({ claims: keys, ttlMs: 1_000 })).toMatchObject({ ok: false });
    const script = "return redis.call('SET', KEYS[1], ARGV[1])";
    expect(await held.eval(script, { keys: [newKey()], arguments: ["1"] })).toBe("OK");
    const slots = await backend.lock({ key: newKey(), slots: 2 }, { ttlMs: 60_000 });
    // Another of this process hears of the release; those of others poll.
    const waiting = backend.lock(keys[0], {
      acquisition: { retryDelayMs: 3_600_000, timeoutMs: 3_600_000 },
    });
    expect(await held.release()).toEqual({ ok: true });
    expect(await (await waiting).release()).toEqual({ ok: true });
    const both = await backend.lock(keys, { ttlMs: 60_000 });
    expect(await both.release()).toEqual({ ok: true });
    expect(await slots.release()).toEqual({ ok: true });
    await backend.close();
    // The client stays its owner's.
    expect(await client.eval("return 1")).toBe(1);
  });
});
