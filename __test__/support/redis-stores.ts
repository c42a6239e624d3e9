/** Redis as the behaviour suites see it. */

import { Redis } from "ioredis";
import type { FencingCapabilities, SyncGuardBackend } from "syncguard";
import {
  createRedisBackend,
  type RedisBackendOptions,
  type RedisClient,
  type RedisConnectionOptions,
} from "syncguard/redis";
import type { Store } from "./backends";
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

function backendsOn(
  at: string | RedisClient | RedisConnectionOptions,
  fixed: RedisBackendOptions,
  stop: () => Promise<void>,
): Store {
  const opened: SyncGuardBackend<FencingCapabilities>[] = [];
  return {
    connect: (options) => {
      const backend = createRedisBackend(at, { ...fixed, ...options });
      opened.push(backend);
      return backend;
    },
    close: async () => {
      await Promise.all(opened.map((backend) => backend.close()));
      await stop();
    },
  };
}
