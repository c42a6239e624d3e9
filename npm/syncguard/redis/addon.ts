/** How a store on Redis is opened, and what it asks a client of the user's for. */

import { addon, callAddon } from "../native/addon.js";
import type { RedisConnection, RedisLockOptions, RedisSettings } from "../native/exports.js";
import { withClient } from "../native/operations.js";
import { openStore, type Store } from "../native/store.js";

/** A script call for a client to carry out. */
export type RedisScriptCall = { script: string; keys: string[]; args: string[] };

export function createRedisConnection(settings: RedisSettings): RedisConnection {
  return callAddon(() => new addon.RedisConnection(settings));
}

export function openRedis(connection: RedisConnection, locks: RedisLockOptions): Store {
  return openStore((completions) => addon.NativeBackend.redis(completions, connection, locks));
}

/** Every script goes through `run`: a client of the user's. */
export function openRedisOverClient(
  run: (call: RedisScriptCall) => Promise<unknown>,
  locks: RedisLockOptions,
): Store {
  return withClient(run, (client) =>
    openStore((completions) => addon.NativeBackend.redisOverClient(completions, client, locks)),
  );
}
