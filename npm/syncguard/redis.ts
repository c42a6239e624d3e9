/** `syncguard/redis` */

import { createAutoLock } from "./lock/lock.js";
import type { BoundLock } from "./lock/types.js";
import { createRedisBackend } from "./redis/backend.js";
import type {
  LockData,
  RedisBackendOptions,
  RedisCapabilities,
  RedisClient,
  RedisClusterNode,
  RedisConfig,
  RedisConnectionOptions,
  RedisTlsOptions,
} from "./redis/types.js";

export {
  createRedisBackend,
  type LockData,
  type RedisBackendOptions,
  type RedisCapabilities,
  type RedisClient,
  type RedisClusterNode,
  type RedisConfig,
  type RedisConnectionOptions,
  type RedisTlsOptions,
};

/** `lock()` bound to a Redis backend: see {@link createRedisBackend}. */
export function createLock(
  client: RedisClient | string | RedisConnectionOptions,
  options?: RedisBackendOptions,
): BoundLock<RedisCapabilities> {
  return createAutoLock(createRedisBackend(client, options));
}
