import { checkDisposal } from "../values/arguments.js";
import { createBackend } from "../backend/native-backend.js";
import { scripting } from "./scripts.js";
import type { SyncGuardBackend } from "../values/types.js";
import type { RedisLockOptions, RedisSettings } from "../native/exports.js";
import { hearing } from "../options/client-events.js";
import { shareConnections } from "../options/clients.js";
import type { StoreWarnings } from "../watching/store-warnings.js";
import { checkKnownOptions } from "../options/known.js";
import { withNodeDefaults } from "../options/tls.js";
import { openOn } from "../options/transport.js";
import {
  checkNumbers,
  checkServerOptions,
  checkStrings,
  copyGiven,
  withoutNulls,
} from "../options/validation.js";
import {
  createRedisConnection,
  openRedis,
  openRedisOverClient,
  type WarningConnection,
} from "./addon.js";
import { runOnClient } from "./client.js";
import { CONNECTION_EVENTS } from "./client-events.js";
import { readClient } from "./client-settings.js";
import { traitsOf } from "./cluster.js";
import { isTlsUrl, readConnection, type Target } from "./connection.js";
import { currentLogin, loginBy } from "./login.js";
import type {
  RedisBackendOptions,
  RedisCapabilities,
  RedisClient,
  RedisConnectionOptions,
} from "./types.js";

/**
 * A backend that keeps locks in Redis: in one server, with or without replicas, TLS and Sentinel, or in a Redis Cluster.
 *
 * It connects at the first operation, and again when the connection is lost. An idle connection does not keep the
 * process alive.
 *
 * @param client - one of
 *   - a client of ioredis or node-redis, also a `Cluster` or of `createCluster`: its settings are read, and the backend makes
 *     a connection of its own. If the settings cannot be carried over, or if it is a wrapper or a mock, its `eval` is used
 *     instead: see {@link RedisBackendOptions.transport}. You close it yourself.
 *   - a URL: `redis://user:password@host:6379/0`, `rediss://…` with TLS, `unix:///path/redis.sock?db=0`,
 *     `redis+sentinel://host:26379,host2:26379/name/0`, `redis+cluster://host:7000,host2:7001`;
 *     `valkey` may stand in the place of `redis` in each
 *   - connection options
 * @throws LockError `InvalidArgument` that names the setting. That a server is down is only reported by the first
 *   operation.
 * @example
 * ```ts
 * import { Redis } from "ioredis";
 * import { createRedisBackend } from "syncguard/redis";
 *
 * const byUrl = createRedisBackend("redis://localhost:6379");
 * const byClient = createRedisBackend(new Redis("redis://localhost:6379"), { keyPrefix: "app" });
 * await using held = await byUrl.lock("report:nightly", { ttlMs: 30_000 });
 * ```
 */
export function createRedisBackend(
  client: RedisClient | string | RedisConnectionOptions,
  options: RedisBackendOptions = {},
): SyncGuardBackend<RedisCapabilities> {
  const backendOptions = withoutNulls(options);
  checkOptions(backendOptions);
  checkDisposal(backendOptions);
  let warnings: StoreWarnings | undefined;
  const { store, transport } = openOn(client, backendOptions.transport, {
    ...{ name: "Redis", clients: "a client with eval()", isClient, readClient },
    readConnection: (connection: string | RedisConnectionOptions) => readConnection(connection),
    connect: (target, own) => {
      const connected = connectNatively(target, backendOptions, own);
      ({ warnings } = connected);
      return openRedis(connected.connection, lockSettings(backendOptions));
    },
    drive: (own) => {
      const locks = lockSettings(backendOptions);
      const store = openRedisOverClient(runOnClient(own), traitsOf(own), locks);
      return hearing(store, own, CONNECTION_EVENTS);
    },
  });
  return createBackend(store, backendOptions, transport, scripting, warnings);
}

function connectNatively(
  { settings, login }: Target,
  options: RedisBackendOptions,
  client?: RedisClient,
): WarningConnection {
  const all = copyGiven({ ...settings }, options, "connectTimeoutMs", "operationTimeoutMs");
  // A URL can turn TLS on, but cannot configure it.
  const urls = [all.url, ...(all.nodes ?? [])];
  if (all.tls === undefined && urls.some(isTlsUrl)) all.tls = {};
  if (all.tls !== undefined) all.tls = withNodeDefaults(all.tls);
  if (client !== undefined) return connectionOf(client, all);
  if (login !== undefined) all.needsLogin = true;
  return createRedisConnection(all, login && loginBy(login));
}

const connectionOf = shareConnections((settings: RedisSettings, client: WeakRef<RedisClient>) =>
  createRedisConnection(settings, currentLogin(client)),
);

function lockSettings(options: RedisBackendOptions): RedisLockOptions {
  const names = ["keyPrefix", "cleanupInIsLocked", "operationTimeoutMs", "replicas"] as const;
  return copyGiven<RedisLockOptions>({}, options, ...names, "fenceTtlMs");
}

function isClient(value: unknown): value is RedisClient {
  return (
    ((typeof value === "object" && value !== null) || typeof value === "function") &&
    typeof (value as Partial<RedisClient>).eval === "function"
  );
}

const OPTIONS: readonly (keyof RedisBackendOptions)[] = [
  "keyPrefix",
  "replicas",
  "fenceTtlMs",
  "operationTimeoutMs",
  "connectTimeoutMs",
  "transport",
  "cleanupInIsLocked",
  "onReleaseError",
  "onLost",
  "disposeTimeoutMs",
];

function checkOptions(options: unknown): asserts options is RedisBackendOptions {
  checkServerOptions(options);
  checkKnownOptions(options as object, OPTIONS, "Redis backend option", {
    commandTimeout: "operationTimeoutMs",
    prefix: "keyPrefix",
  });
  const { keyPrefix, replicas, fenceTtlMs } = options as Record<keyof RedisBackendOptions, unknown>;
  checkStrings({ keyPrefix });
  checkNumbers({ replicas, fenceTtlMs });
}
