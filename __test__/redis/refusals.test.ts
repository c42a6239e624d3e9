/** What a server refuses in the middle of a script, through our own connection and through clients. */

import { mkdirSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import { createClient, createCluster } from "redis";
import { Cluster, Redis } from "ioredis";
import { describe, expect, onTestFinished, test } from "vitest";
import { createRedisBackend } from "syncguard/redis";
import { lockError } from "../support/errors";
import { freePort } from "../support/ports";
import { type RedisServer, startRedis, startRedis62 } from "../support/redis";
import type { Backend } from "../support/suite";
import { until } from "../support/until";

const VERSIONS = [
  ["the installed version", startRedis],
  ["the oldest version", startRedis62],
] as const;

async function backendsOf(server: RedisServer): Promise<Backend[]> {
  const ioredis = new Redis(server.port);
  const nodeRedis = createClient({ url: server.url });
  nodeRedis.on("error", () => undefined);
  await nodeRedis.connect();
  const backends = [
    createRedisBackend(server.url),
    createRedisBackend(ioredis, { transport: "client" }),
    createRedisBackend(nodeRedis, { transport: "client" }),
  ];
  onTestFinished(async () => {
    for (const backend of backends) await backend.close();
    ioredis.disconnect();
    nodeRedis.destroy();
  });
  return backends;
}

describe.each(VERSIONS)("%s", (_, start) => {
  test("each refusal is told by its code", async () => {
    const server = await start();
    onTestFinished(() => server.stop());
    const backends = await backendsOf(server);
    const { admin } = server;
    const refused = async (code: string): Promise<void> => {
      for (const backend of backends) {
        const error = await lockError(backend.acquire({ key: "k", ttlMs: 5_000 }));
        expect(error.code).toBe("ServiceUnavailable");
        expect(error.message).toContain(`redis answered ${code}: `);
      }
    };
    await admin.config("SET", "maxmemory", "1");
    await refused("OOM");
    await admin.config("SET", "maxmemory", "0");
    await admin.config("SET", "min-replicas-to-write", "1");
    await refused("NOREPLICAS");
    await admin.config("SET", "min-replicas-to-write", "0");
    // What is to be written there cannot be.
    const file = join(server.folder, "dump.rdb");
    mkdirSync(file);
    await admin.config("SET", "save", "3600 1000000");
    await admin.bgsave();
    await until(async () => (await admin.info("persistence")).includes("last_bgsave_status:err"));
    await refused("MISCONF");
    rmdirSync(file);
    await admin.config("SET", "save", "");
    await admin.replicaof("127.0.0.1", await freePort());
    await refused("READONLY");
  });
});

test("a cluster that is down and may be read is waited for", { timeout: 90_000 }, async () => {
  const server = await startRedis({
    lines: [
      "cluster-enabled yes",
      "cluster-config-file nodes.conf",
      // ioredis knows no node without an address.
      "cluster-announce-ip 127.0.0.1",
      "cluster-allow-reads-when-down yes",
    ],
  });
  onTestFinished(() => server.stop());
  const all = Array.from({ length: 16_383 }, (_, slot) => slot + 1);
  await server.admin.cluster("ADDSLOTS", ...all);
  const startup = [{ host: "127.0.0.1", port: server.port }];
  const ioredis = new Cluster(startup, { enableReadyCheck: false });
  ioredis.on("error", () => undefined);
  const nodeRedis = createCluster({ rootNodes: [{ url: server.url }] });
  nodeRedis.on("error", () => undefined);
  await nodeRedis.connect();
  const options = { operationTimeoutMs: 1_000 };
  const backends = [
    createRedisBackend(`redis+cluster://127.0.0.1:${server.port}`, options),
    createRedisBackend(ioredis, { ...options, transport: "client" }),
    createRedisBackend(nodeRedis, { ...options, transport: "client" }),
  ];
  onTestFinished(async () => {
    for (const backend of backends) await backend.close();
    ioredis.disconnect();
    nodeRedis.destroy();
  });
  for (const backend of backends) {
    const error = await lockError(backend.acquire({ key: "k", ttlMs: 5_000 }));
    expect(error.code).toBe("ServiceUnavailable");
    expect(error.message).toContain("redis answered CLUSTERDOWN: ");
  }
  const waiting = backends.map((backend, number) =>
    backend.lock(`k${number}`, { acquisition: { timeoutMs: 60_000 } }),
  );
  await server.admin.cluster("ADDSLOTS", 0);
  for (const held of await Promise.all(waiting)) expect(await held.release()).toEqual({ ok: true });
});
