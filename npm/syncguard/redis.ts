/** `syncguard/redis` */

import { notBuilt } from "./not-built.js";
import type {
  AsyncLock,
  BackendCapabilities,
  CommonBackendOptions,
  SyncGuardBackend,
} from "./types.js";

/** Redis gives fencing tokens, and its clock decides. */
export interface RedisCapabilities extends BackendCapabilities {
  backend: "redis";
  supportsFencing: true;
  timeAuthority: "server";
}

/** Options of the Redis backend. */
export interface RedisBackendOptions extends CommonBackendOptions {
  /** Namespace of all keys. Default `"syncguard"`. */
  keyPrefix?: string | undefined;
}

/** The options with nothing left open. */
export interface RedisConfig {
  keyPrefix: string;
  cleanupInIsLocked: boolean;
}

/** A lock as Redis keeps it, in JSON. */
export interface LockData {
  lockId: string;
  /** Milliseconds since the Unix epoch. */
  expiresAtMs: number;
  /** Milliseconds since the Unix epoch. */
  acquiredAtMs: number;
  key: string;
  fence: string;
}

/**
 * A backend that keeps locks in Redis.
 *
 * @param client - an ioredis or node-redis client, a URL, or connection options
 * @throws LockError `InvalidArgument`: not built yet
 */
export function createRedisBackend(
  client: unknown,
  options?: RedisBackendOptions,
): SyncGuardBackend<RedisCapabilities>;
export function createRedisBackend(): SyncGuardBackend<RedisCapabilities> {
  return notBuilt("Redis");
}

/** `lock()` bound to a Redis backend: see {@link createRedisBackend}. */
export function createLock(
  client: unknown,
  options?: RedisBackendOptions,
): AsyncLock<RedisCapabilities>;
export function createLock(): AsyncLock<RedisCapabilities> {
  return notBuilt("Redis");
}
