/** The public types of the Redis backend. */

import type { BackendCapabilities, CommonBackendOptions } from "../values/types.js";

/** Redis gives fencing tokens, and its clock decides. */
export interface RedisCapabilities extends BackendCapabilities {
  /** The store, for those who handle backends of several. */
  backend: "redis";
  /** Each acquisition comes with a fencing token. */
  supportsFencing: true;
  /** The clock of the Redis server decides when a lock ends. */
  timeAuthority: "server";
}

/**
 * Your client: ioredis, node-redis, a cluster of either, or any object with their `eval`.
 *
 * - ioredis and its like: `eval(script, numKeys, ...keys, ...args)`, all but `numKeys` strings
 * - node-redis: `eval(script, { keys, arguments })`
 *
 * An object of your own that leads to a Redis Cluster needs `isCluster: true`, as ioredis has it, and must send each script
 * to the node of its keys.
 */
export interface RedisClient {
  /** Runs a script of Lua on the server. */
  eval: (...args: never[]) => unknown;
}

/** Which servers to trust, and how the client identifies itself. Certificates and keys are PEM. */
export interface RedisTlsOptions {
  /** The certificates to trust. Default: those that Node trusts. */
  ca?: string | Uint8Array | readonly (string | Uint8Array)[] | undefined;
  /** The client certificate to present, with its chain. */
  cert?: string | Uint8Array | readonly (string | Uint8Array)[] | undefined;
  /** Its private key, without a passphrase. */
  key?: string | Uint8Array | undefined;
  /** The name that the server's certificate must have. Default: the host. */
  servername?: string | undefined;
  /** Whether a certificate that cannot be trusted ends the connection. Default true. */
  rejectUnauthorized?: boolean | undefined;
}

/** The address of one node of a cluster. */
export interface RedisClusterNode {
  /** A name or an address. Default `"localhost"`. */
  host?: string | undefined;
  /** The port. Default 6379. */
  port?: number | undefined;
}

/** Where a Redis server is. Options given besides `url` override it. */
export interface RedisConnectionOptions {
  /** A URL as for {@link createRedisBackend}. */
  url?: string | undefined;
  /** A name or an address. Default `"localhost"`. */
  host?: string | undefined;
  /** The port. Default 6379. */
  port?: number | undefined;
  /** A socket in the file system, instead of host and port. */
  path?: string | undefined;
  /** The number of the database. Default 0, which is the only one of a cluster. */
  db?: number | undefined;
  /** The ACL user, or a function as for `password`; needs a password. Default: the default user. */
  username?: string | (() => string | PromiseLike<string>) | undefined;
  /** The password, or a function that gives one for each connection, for example a token that expires. Default: none. */
  password?: string | (() => string | PromiseLike<string>) | undefined;
  /** TLS, or `true` for TLS with the certificates that Node trusts. Default: only with a URL of `rediss:` or `valkeys:`. */
  tls?: RedisTlsOptions | boolean | undefined;
  /**
   * Some nodes of a Redis Cluster, instead of `url` or of host and port: each `"host:port"`, a `redis://` or `rediss://` URL,
   * or `{ host, port }`. They are asked for the others. All other options apply to every node; URLs with a login must have
   * the same one.
   *
   * @example
   * ```ts
   * import { createRedisBackend } from "syncguard/redis";
   *
   * const cluster = createRedisBackend({ nodes: ["10.0.0.1:7000", "10.0.0.2:7000"], password: "…" });
   * ```
   */
  nodes?: readonly (string | RedisClusterNode)[] | undefined;
  /**
   * Where the nodes of a cluster can be reached, if not at the addresses that they announce: behind NAT, in containers,
   * through tunnels. By the announced `"host:port"`; other nodes are used as they are. A function is not possible here.
   *
   * @example
   * ```ts
   * import { createRedisBackend } from "syncguard/redis";
   *
   * const cluster = createRedisBackend({
   *   nodes: ["127.0.0.1:17000"],
   *   natMap: { "10.0.0.1:7000": { host: "127.0.0.1", port: 17000 } },
   * });
   * ```
   */
  natMap?:
    | Readonly<
        Record<
          string,
          {
            /** Where the node can be reached: a name or an address. */
            host: string;
            /** The port there. */
            port: number;
          }
        >
      >
    | undefined;
  /** Sentinels to ask for the primary, instead of host and port. With TLS, they must use it too. */
  sentinels?:
    | readonly {
        /** A name or an address. */
        host: string;
        /** The port. Default 26379. */
        port?: number | undefined;
      }[]
    | undefined;
  /** The name that the Sentinels use for the primary; needed with `sentinels`. */
  name?: string | undefined;
  /** The ACL user of the Sentinels themselves. Default: their default user. */
  sentinelUsername?: string | undefined;
  /** The password of the Sentinels themselves. Default: none. */
  sentinelPassword?: string | undefined;
  /** The name of the connection in `CLIENT LIST`. */
  connectionName?: string | undefined;
  /** A prefix of every key, like ioredis' option `keyPrefix`, and not the same as the backend's `keyPrefix`. */
  clientKeyPrefix?: string | undefined;
}

/** Options of the Redis backend. */
export interface RedisBackendOptions extends CommonBackendOptions {
  /** Namespace of all keys. Default `"syncguard"`. */
  keyPrefix?: string | undefined;
  /**
   * How many replicas must have a lock before it counts as granted, and an extension before it counts (`WAIT`). If they do not have
   * it within a tenth of `operationTimeoutMs`, a lock is released again, an extension does not move the end, and either fails with
   * `ServiceUnavailable`. Both have connections of their own then; through a client that cannot be carried over, this is refused.
   * Default 0: the primary's word is enough.
   */
  replicas?: number | undefined;
  /**
   * Milliseconds after which the fence counter of a key goes if nobody has acquired the lock; at least 3,600,000, an hour. For keys
   * that are used once, such as ids of webhooks. Not while processes on SyncGuard 2.x share the store, whose fences would begin
   * at 1. Default: counters stay.
   */
  fenceTtlMs?: number | undefined;
  /**
   * Milliseconds after which an operation fails with `NetworkTimeout` or `ServiceUnavailable`. Default: `commandTimeout`
   * of an ioredis client, else 5000.
   */
  operationTimeoutMs?: number | undefined;
  /** Milliseconds that making a connection may take. Default: the client's `connectTimeout`, else 5000. */
  connectTimeoutMs?: number | undefined;
  /**
   * How operations get to the server.
   *
   * - `"native"`: over a connection of this package. Of a client, only the settings are used.
   * - `"client"`: through the client's own `eval`.
   *
   * Default: native if all settings that matter can be carried over, else the client.
   */
  transport?: "native" | "client" | undefined;
}

/** The options, with the defaults filled in. */
export interface RedisConfig {
  /** Namespace of all keys. */
  keyPrefix: string;
  /** Whether `isLocked()` deletes what expired more than two seconds ago. */
  cleanupInIsLocked: boolean;
}

/** A lock as Redis keeps it, in JSON. */
export interface LockData {
  /** The lock id: whoever knows it can release the lock. */
  lockId: string;
  /** When the lock ends, in milliseconds since the Unix epoch. */
  expiresAtMs: number;
  /** When the lock was granted, in milliseconds since the Unix epoch. */
  acquiredAtMs: number;
  /** The user's key in Unicode NFC. */
  key: string;
  /** The fencing token: 15 decimal digits. */
  fence: string;
}
