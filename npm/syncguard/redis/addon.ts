/** What the addon has for Redis: the settings and calls that cross, and how a store is opened. */

import { callAddon, type Completions, exported, type Handle } from "../native/addon.js";
import { withClient } from "../native/operations.js";
import { openStore, type Store } from "../native/store.js";
import type { Roots } from "../options/node-trust.js";

/** How locks are kept in Redis, whoever carries them there. */
export type RedisLocks = {
  keyPrefix?: string;
  cleanupInIsLocked?: boolean;
  operationTimeoutMs?: number;
};

/** Where a Redis server is. What stands beside a URL overrides it. */
export type RedisSettings = {
  url?: string;
  host?: string;
  port?: number;
  path?: string;
  db?: number;
  username?: string;
  password?: string;
  /** Certificates and keys as PEM. */
  tls?: {
    ca?: string;
    /** Whom to trust without `ca`. */
    defaultRoots?: Roots;
    cert?: string;
    key?: string;
    servername?: string;
    rejectUnauthorized?: boolean;
  };
  sentinels?: { host: string; port?: number }[];
  name?: string;
  sentinelUsername?: string;
  sentinelPassword?: string;
  connectionName?: string;
  /** Stands before every key that is sent, as ioredis' own keyPrefix does. */
  clientKeyPrefix?: string;
  connectTimeoutMs?: number;
  operationTimeoutMs?: number;
};

/** A script call for a client to carry out. */
export type RedisScriptCall = { script: string; keys: string[]; args: string[] };

/** A connection for several backends; it is made when it is needed. */
export interface RedisConnection {
  readonly [Symbol.toStringTag]?: "RedisConnection";
}

const addon = exported as {
  RedisConnection: new (settings: RedisSettings) => RedisConnection;
  NativeBackend: {
    redis(completions: Completions, connection: RedisConnection, locks: RedisLocks): Handle;
    redisOverClient(completions: Completions, client: number, locks: RedisLocks): Handle;
  };
};

export function createRedisConnection(settings: RedisSettings): RedisConnection {
  return callAddon(() => new addon.RedisConnection(settings));
}

export function openRedis(connection: RedisConnection, locks: RedisLocks): Store {
  return openStore((completions) => addon.NativeBackend.redis(completions, connection, locks));
}

/** Every script goes through `run`: a client of the user's. */
export function openRedisOverClient(
  run: (call: RedisScriptCall) => Promise<unknown>,
  locks: RedisLocks,
): Store {
  return withClient(run, (client) =>
    openStore((completions) => addon.NativeBackend.redisOverClient(completions, client, locks)),
  );
}
