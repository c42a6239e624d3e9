/** Redis as the behaviour suites see it. */

import { Cluster, Redis } from "ioredis";
import { createCluster } from "redis";
import { afterAll } from "vitest";
import type { SyncGuardBackend } from "syncguard";
import {
  createRedisBackend,
  type RedisBackendOptions,
  type RedisClient,
  type RedisConnectionOptions,
} from "syncguard/redis";
import type { Store } from "./backends";
import { PATIENT } from "./in-time";
import { type RedisCluster, startRedisCluster } from "./redis-cluster";
import { plainRedis, startRedis62, startSentinelSet, startTlsRedis } from "./redis";

/** Over a native connection from a URL. */
export async function redisByUrl(): Promise<Store> {
  const server = await plainRedis();
  return backendsOn(server.url, {}, server.stop);
}

/** On the oldest Redis that is supported, natively or through a client of ioredis. */
export async function redis62By(transport: "native" | "client"): Promise<Store> {
  const server = await startRedis62();
  const { admin } = server;
  return backendsOn(admin, { transport }, server.stop);
}

/** Over a client of ioredis, on either transport. */
export async function redisByClient(transport: "native" | "client"): Promise<Store> {
  const server = await plainRedis();
  const client = new Redis(server.url, { lazyConnect: transport === "native" });
  return backendsOn(client, { transport }, async () => {
    client.disconnect();
    await server.stop();
  });
}

/** Over TLS with client certificates, as a user who may do little else. */
export async function redisOverTls(): Promise<Store> {
  const server = await startTlsRedis();
  return backendsOn(server.connection, {}, server.stop);
}

/** At the primary that a Sentinel names. */
export async function redisBySentinel(): Promise<Store> {
  const set = await startSentinelSet();
  return backendsOn(set.url, {}, set.stop);
}

/** Over native connections to a cluster. */
export async function redisCluster(by: "url" | "nodes"): Promise<Store> {
  const { url, addresses } = await sharedCluster();
  return backendsOn(by === "url" ? url : { nodes: addresses }, {}, () => Promise.resolve());
}

/** Over a cluster of ioredis, on either transport. */
export async function redisClusterByIoredis(transport: "native" | "client"): Promise<Store> {
  const { nodes } = await sharedCluster();
  const startup = nodes.map(({ port }) => ({ host: "127.0.0.1", port }));
  const client = new Cluster(startup, { lazyConnect: transport === "native" });
  return backendsOn(client, { transport }, () => {
    client.disconnect();
    return Promise.resolve();
  });
}

/** Over a cluster of node-redis, on either transport. */
export async function redisClusterByNodeRedis(transport: "native" | "client"): Promise<Store> {
  const { nodes } = await sharedCluster();
  const client = createCluster({ rootNodes: nodes.map(({ url }) => ({ url })) });
  if (transport === "native") return backendsOn(client, { transport }, () => Promise.resolve());
  await client.connect();
  return backendsOn(client, { transport }, () => client.close());
}

/** The cluster of all stores in one file: it takes seconds to start. */
let shared: Promise<RedisCluster> | undefined;

async function sharedCluster(): Promise<RedisCluster> {
  shared ??= startRedisCluster({ replicas: false });
  return await shared;
}

/** For files that define their tests for every store. */
export function stopSharedCluster(): void {
  afterAll(async () => {
    await (await shared)?.stop();
    shared = undefined;
  });
}

function backendsOn(
  at: string | RedisClient | RedisConnectionOptions,
  fixed: RedisBackendOptions,
  stop: () => Promise<void>,
): Store {
  const opened: SyncGuardBackend[] = [];
  return {
    connect: (options) => {
      const backend = createRedisBackend(at, { ...PATIENT, ...fixed, ...options });
      opened.push(backend);
      return backend;
    },
    close: async () => {
      await Promise.all(opened.map((backend) => backend.close()));
      await stop();
    },
  };
}
