/** Redis Cluster: how it is given, and the clients that lead to one. */

import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { Cluster } from "ioredis";
import { createCluster } from "redis";
import { createCluster as createCluster4 } from "redis-4";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { lock } from "syncguard";
import { createRedisBackend, type RedisClient, type RedisConnectionOptions } from "syncguard/redis";
import { lockError } from "../support/errors";
import { isFromTheClock } from "../support/fences";
import { type RedisCluster, startRedisCluster } from "../support/redis-cluster";
import { freePort } from "../support/ports";
import { startTlsRedis } from "../support/redis";
import { startSlowLink } from "../support/slow-link";
import { newKey, take } from "../support/suite";
import { until } from "../support/until";

/** An ACL user who may do what locks in a cluster need. */
const USER =
  "user nodes on >s3cret ~{syncguard:* &{syncguard:* -@all +eval +evalsha +get +set +del +time +ping +publish +spublish +cluster|slots";

let cluster: RedisCluster;
beforeAll(async () => {
  cluster = await startRedisCluster({ replicas: false });
});
afterAll(async () => {
  await cluster.stop();
});

/** A client of ioredis; ended with the test. */
function ioredis(options: ConstructorParameters<typeof Cluster>[1] = {}): Cluster {
  const startup = cluster.nodes.map(({ port }) => ({ host: "127.0.0.1", port }));
  const client = new Cluster(startup, options);
  onTestFinished(() => {
    client.disconnect();
  });
  return client;
}

/** A connected client of node-redis; ended with the test. */
async function nodeRedis(create = createCluster) {
  const client = create({ rootNodes: cluster.nodes.map(({ url }) => ({ url })) });
  await client.connect();
  onTestFinished(async () => {
    if (client.isOpen) await end(client);
  });
  return client;
}
/** Both versions of node-redis have it. */
const end = async (client: object) => await (client as { quit: () => Promise<unknown> }).quit();
const nodeRedis4 = () => nodeRedis(createCluster4 as unknown as typeof createCluster);

/** How many connections of that name all nodes have together. */
async function connections(name: string): Promise<number> {
  const lists = await Promise.all(cluster.nodes.map(({ admin }) => admin.client("LIST")));
  return String(lists).split(`name=${name} `).length - 1;
}

/** How many calls all nodes have sent to another. */
async function redirections(): Promise<number> {
  const all = await Promise.all(cluster.nodes.map(({ admin }) => admin.info("errorstats")));
  return all
    .flatMap((info) => [...info.matchAll(/errorstat_(?:MOVED|ASK):count=(\d+)/g)])
    .reduce((sum, [, count]) => sum + Number(count), 0);
}

/** The names in the cluster that hold `part`. */
async function names(part: string): Promise<string[]> {
  const lists = await Promise.all(cluster.nodes.map(({ admin }) => admin.keys(`*${part}*`)));
  return lists.flat().sort();
}

describe("a cluster", () => {
  const WAYS: readonly (readonly [string, () => string | RedisConnectionOptions])[] = [
    ["the URL of one node", () => `redis+cluster://${cluster.addresses[0]}/0?connectionName=one`],
    ["a text", () => ({ nodes: [cluster.addresses[1]!], connectionName: "one" })],
    [
      "a host and a port",
      () => ({
        nodes: [{ host: "127.0.0.1", port: cluster.nodes[2]!.port }],
        connectionName: "one",
      }),
    ],
    ["a URL of a node", () => ({ nodes: [`${cluster.nodes[0]!.url}?connectionName=one`] })],
  ];
  test.each(WAYS)("found by %s", async (_, where) => {
    const backend = createRedisBackend(where(), { keyPrefix: "app" });
    onTestFinished(backend.close);
    const keys = Array.from({ length: 64 }, newKey);
    const held = await Promise.all(keys.map((key) => take(backend, key)));
    // The three entries of each are together, and the locks are spread over all nodes.
    expect(await names(keys[0]!)).toHaveLength(2);
    expect(await names(held[0]!.lockId)).toHaveLength(1);
    expect(await connections("one")).toBe(3);
    for (const { release } of held) expect(await release()).toEqual({ ok: true });
  });

  test("whose nodes are elsewhere than they say", async () => {
    const links = await Promise.all(cluster.nodes.map(({ port }) => startSlowLink(port)));
    onTestFinished(async () => {
      await Promise.all(links.map((link) => link.stop()));
    });
    const natMap = Object.fromEntries(
      cluster.addresses.map((address, number) => [
        address,
        { host: "127.0.0.1", port: links[number]!.port },
      ]),
    );
    const nodes = Object.values(natMap);
    const client = new Cluster(nodes, { lazyConnect: true, natMap });
    for (const backend of [
      createRedisBackend({ nodes, natMap }, { operationTimeoutMs: 500 }),
      createRedisBackend(client, { transport: "native", operationTimeoutMs: 500 }),
    ]) {
      onTestFinished(backend.close);
      const keys = Array.from({ length: 16 }, newKey);
      await Promise.all(keys.map((key) => take(backend, key)));
      // Every call goes through a link.
      for (const link of links) link.delayMs = 2_000;
      const calls = keys.map((key) => lockError(backend.isLocked({ key })));
      for (const { code } of await Promise.all(calls)) {
        expect(["NetworkTimeout", "ServiceUnavailable"]).toContain(code);
      }
      for (const link of links) link.delayMs = 0;
    }
  });

  test("by a user and a password that functions give for each node", async () => {
    for (const { admin } of cluster.nodes) {
      await admin.call("ACL", "SETUSER", "app", "on", ">token", "~*", "&*", "+@all");
    }
    const password = vi.fn(() => Promise.resolve("token"));
    const options = { username: () => "app", password, connectionName: "by-functions" };
    const backend = createRedisBackend({ nodes: cluster.addresses, ...options });
    onTestFinished(backend.close);
    for (let count = 0; count < 10; count += 1) await (await take(backend, newKey())).release();
    const opened = await connections("by-functions");
    expect(opened).toBeGreaterThan(1);
    expect(password.mock.calls.length).toBeGreaterThanOrEqual(opened);
  });

  test("over TLS, whose certificate is trusted by an option", async () => {
    const lines = ["cluster-enabled yes", `cluster-port ${await freePort()}`, "tls-cluster yes"];
    const { connection, ...server } = await startTlsRedis([...lines, USER]);
    onTestFinished(server.stop);
    const { port, tls } = connection;
    await server.admin.call("CLUSTER", "ADDSLOTSRANGE", "0", "16383");
    const isOk = async () =>
      String(await server.admin.call("CLUSTER", "INFO")).includes("state:ok");
    await until(isOk, 20_000);
    for (const where of [
      { url: `rediss+cluster://nodes:s3cret@127.0.0.1:${port}`, tls },
      { nodes: [`rediss://nodes:s3cret@127.0.0.1:${port}`], tls },
      { url: `valkeys+cluster://nodes:s3cret@127.0.0.1:${port}`, tls },
      { nodes: [`valkeys://nodes:s3cret@127.0.0.1:${port}`], tls },
      { nodes: [`127.0.0.1:${port}`], username: "nodes", password: "s3cret", tls },
    ]) {
      const backend = createRedisBackend(where);
      onTestFinished(backend.close);
      expect(await (await take(backend, newKey())).release()).toEqual({ ok: true });
    }
    // Node itself does not trust it.
    const distrustful = createRedisBackend(`rediss+cluster://nodes:s3cret@127.0.0.1:${port}`);
    onTestFinished(distrustful.close);
    const error = await lockError(distrustful.isLocked({ key: newKey() }));
    expect(error.message).toMatch(/certificate/);
  });

  test("keeps all locks in the slot of a hash tag in the prefix", async () => {
    const backend = createRedisBackend(cluster.url, { keyPrefix: "{locks}" });
    onTestFinished(backend.close);
    const key = newKey();
    await take(backend, key);
    expect(await names(key)).toEqual([`{locks}:fence:{locks}:${key}`, `{locks}:${key}`]);
  });
});

describe("clients", () => {
  const KINDS: readonly (readonly [string, () => RedisClient | Promise<RedisClient>])[] = [
    ["ioredis", () => ioredis()],
    ["ioredis with auto-pipelining", () => ioredis({ enableAutoPipelining: true })],
    ["node-redis 4", nodeRedis4],
    ["node-redis 5", nodeRedis],
  ];
  test.each(KINDS)("%s sees the same locks as a connection of our own", async (_, make) => {
    const driven = createRedisBackend(await make(), { transport: "client" });
    const native = createRedisBackend(cluster.url, { cleanupInIsLocked: true });
    onTestFinished(native.close);
    // Each goes to the right node at once, and none is refused for too many redirections.
    const redirected = await redirections();
    await Promise.all(Array.from({ length: 64 }, () => driven.isLocked({ key: newKey() })));
    expect(await redirections()).toBe(redirected);
    for (const [mine, other] of [
      [driven, native],
      [native, driven],
    ] as const) {
      const key = newKey();
      const held = await take(mine, key);
      expect(await other.acquire({ key, ttlMs: 5_000 })).toMatchObject({ ok: false });
      expect(await other.isLocked({ key })).toBe(true);
      expect(await other.lookup({ lockId: held.lockId })).toEqual(await mine.lookup({ key }));
      expect(await other.extend({ lockId: held.lockId, ttlMs: 9_000 })).toMatchObject({ ok: true });
      expect(await other.release({ lockId: held.lockId })).toEqual({ ok: true });
      expect((await take(mine, key)).fence > held.fence).toBe(true);
      expect(await other.forceRelease(key)).toEqual({ ok: true });
    }
  });

  test.each(["tenant:", "{tenant}:", "a}b:"])(
    "a client's own keyPrefix %s stands before every key, on either transport",
    async (keyPrefix) => {
      const client = ioredis({ keyPrefix });
      const driven = createRedisBackend(client, { transport: "client", cleanupInIsLocked: true });
      const native = createRedisBackend(client, { transport: "native", cleanupInIsLocked: true });
      onTestFinished(native.close);
      const direct = createRedisBackend({ nodes: cluster.addresses, clientKeyPrefix: keyPrefix });
      onTestFinished(direct.close);
      const key = newKey();
      const { lockId, fence } = await take(driven, key);
      const stored = await names(key);
      expect(stored).toHaveLength(2);
      for (const name of stored) expect(name.startsWith(keyPrefix)).toBe(true);
      expect(await native.isLocked({ key })).toBe(true);
      expect(await direct.extend({ lockId, ttlMs: 5_000 })).toMatchObject({ ok: true });
      expect(await native.release({ lockId })).toEqual({ ok: true });
      const again = await take(native, key);
      expect(again.fence > fence).toBe(true);
      expect(await names(key)).toEqual(stored);
      expect(await driven.release({ lockId: again.lockId })).toEqual({ ok: true });
      const last = await lock(driven, (handle) => handle.fence, { key });
      expect(last > again.fence).toBe(true);
    },
  );

  test("backends on one client with the same settings share its connections", async () => {
    const client = ioredis({ lazyConnect: true, redisOptions: { connectionName: "shared" } });
    const first = createRedisBackend(client);
    const second = createRedisBackend(client, { keyPrefix: "other" });
    const keys = Array.from({ length: 32 }, newKey);
    for (const key of keys) await Promise.all([take(first, key), take(second, key)]);
    expect(await connections("shared")).toBe(3);
    await first.close();
    expect(await second.isLocked({ key: keys[0]! })).toBe(true);
    await second.close();
    await until(async () => (await connections("shared")) === 0);
    // ioredis itself has not connected.
    expect(client.status).toBe("wait");
  });

  const CLOSED: readonly (readonly [string, () => Promise<RedisClient>])[] = [
    [
      "ioredis",
      async () => {
        const client = ioredis();
        await client.ping();
        await client.quit();
        return client;
      },
    ],
    [
      "node-redis 4",
      async () => {
        const client = await nodeRedis4();
        await end(client);
        return client;
      },
    ],
    [
      "node-redis 5",
      async () => {
        const client = await nodeRedis();
        await client.close();
        return client;
      },
    ],
    ["node-redis that never connected", () => Promise.resolve(createCluster({ rootNodes: [] }))],
  ];
  test.each(CLOSED)("one of %s that is closed cannot be driven", async (_, make) => {
    const backend = createRedisBackend(await make(), { transport: "client" });
    const key = newKey();
    expect((await lockError(backend.isLocked({ key }))).code).toBe("ServiceUnavailable");
    const error = await lockError(backend.acquire({ key, ttlMs: 5_000 }));
    expect(error.code).toBe("ServiceUnavailable");
    expect(error.message).not.toContain(key);
  });

  test("node-redis that is still connecting is not an internal error", async () => {
    // A server that never answers.
    const sockets: Socket[] = [];
    const silent = createServer((socket) => sockets.push(socket)).listen(0, "127.0.0.1");
    await once(silent, "listening");
    const { port } = silent.address() as AddressInfo;
    const client = createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${port}` }] });
    client.on("error", () => undefined);
    client.connect().catch(() => undefined);
    onTestFinished(() => {
      client.destroy();
      for (const socket of sockets) socket.destroy();
      silent.close();
    });
    const backend = createRedisBackend(client, { transport: "client" });
    const error = await lockError(backend.isLocked({ key: newKey() }));
    expect(error.code).toBe("ServiceUnavailable");
    expect(error.message).toMatch(/^the redis client is not connected: /);
  });

  test("a call that a client sends twice takes effect once", async () => {
    const client = ioredis();
    // As after a connection that was lost with the answer.
    const twice = {
      isCluster: true,
      eval: async (...call: Parameters<Cluster["eval"]>) => {
        await client.eval(...call);
        return await client.eval(...call);
      },
    };
    const backend = createRedisBackend(twice);
    const key = newKey();
    const held = await take(backend, key);
    expect(held.fence).toSatisfy(isFromTheClock);
    expect(await backend.acquire({ key, ttlMs: 5_000 })).toMatchObject({ ok: false });
    expect(await backend.lookup({ lockId: held.lockId })).toMatchObject({ fence: held.fence });
    expect(await held.extend(9_000)).toMatchObject({ ok: true });
    // The second time there is nothing left to release.
    await held.release();
    expect(await backend.isLocked({ key })).toBe(false);
    expect((await take(backend, key)).fence > held.fence).toBe(true);
  });
});
