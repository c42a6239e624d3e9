/** Opens stores on Redis, and the requests that they make to a client of the user's. */

import { addon, callAddon } from "../native/addon.js";
import type {
  RedisClientTraits,
  RedisConnection,
  RedisLockOptions,
  RedisSettings,
} from "../native/exports.js";
import { withClient } from "../native/operations.js";
import { openStore, type Store } from "../native/store.js";

/** A script for a client to run. */
export type RedisScriptCall = { script: string; keys: string[]; args: string[] };

export function createRedisConnection(settings: RedisSettings): RedisConnection {
  return callAddon(() => new (addon().RedisConnection)(settings));
}

export function openRedis(connection: RedisConnection, locks: RedisLockOptions): Store {
  return openStore((completions) => addon().NativeBackend.redis(completions, connection, locks));
}

/** Every script goes through `run`, which uses a client of the user's. */
export function openRedisOverClient(
  run: (call: RedisScriptCall) => Promise<unknown>,
  traits: RedisClientTraits,
  locks: RedisLockOptions,
): Store {
  return withClient(run, (client) =>
    openStore((completions) =>
      addon().NativeBackend.redisOverClient(completions, client, traits, locks),
    ),
  );
}
