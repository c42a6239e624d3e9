/** `syncguard/redis` */

import "./native/required.js";
import { createOwnLock } from "./backend/lock.js";
import type { ClosableLock } from "./values/types.js";
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

/**
 * `lock()` bound to a Redis backend of its own, which `lock.close()` closes.
 *
 * @param client - as for {@link createRedisBackend}
 * @param options - as for {@link createRedisBackend}
 * @throws LockError `InvalidArgument` that names the setting
 * @example
 * ```ts
 * import { createLock } from "syncguard/redis";
 *
 * const lock = createLock("redis://localhost:6379");
 * await lock(({ fence }) => console.log("working under fence", fence), { key: "report:nightly" });
 * ```
 */
export function createLock(
  client: RedisClient | string | RedisConnectionOptions,
  options?: RedisBackendOptions,
): ClosableLock<RedisCapabilities> {
  return createOwnLock(createRedisBackend(client, options));
}
