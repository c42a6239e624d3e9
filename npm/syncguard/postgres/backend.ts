import { checkDisposal } from "../values/arguments.js";
import { createBackend } from "../backend/native-backend.js";
import type { SyncGuardBackend } from "../values/types.js";
import type { BackendTransport } from "../options/backend-transport.js";
import type { PostgresLockOptions, PostgresSettings } from "../native/exports.js";
import type { Store } from "../native/store.js";
import { hearing } from "../options/client-events.js";
import { shareConnections } from "../options/clients.js";
import { tellTransport } from "../options/debug.js";
import { checkKnownOptions } from "../options/known.js";
import { GIVEN, openOn } from "../options/transport.js";
import {
  checkBooleans,
  checkServerOptions,
  checkStrings,
  copyGiven,
  invalid,
  withoutNulls,
} from "../options/validation.js";
import { createPostgresConnection, openPostgres, openPostgresOverClient } from "./addon.js";
import { runOnClient } from "./client.js";
import { isClient, readClient } from "./client-settings.js";
import { guarding } from "./guard.js";
import { isCount, readConnection } from "./connection.js";
import { currentLogin, loginOf } from "./login.js";
import { CONNECTION_EVENTS, tellingOfQueues } from "./pool.js";
import { type Target, withNodeRoots } from "./target.js";
import type {
  PostgresBackendOptions,
  PostgresCapabilities,
  PostgresClient,
  PostgresConnectionOptions,
  PostgresSchemaOptions,
} from "./types.js";

/**
 * A backend that keeps locks in PostgreSQL. The tables must exist: see {@link setupSchema}.
 *
 * It connects at the first operation, and again when connections are lost. Idle connections do not keep the process
 * alive.
 *
 * @param sql - one of
 *   - a postgres.js instance, or a pg `Pool` or `Client`: its settings are read, and the backend makes connections of
 *     its own. If the settings cannot be carried over, or if it is a wrapper or a mock, its method for queries is used
 *     instead: see {@link PostgresBackendOptions.transport}. You close it yourself.
 *   - a URL, as for `psql`: `postgres://user:password@host:5432/database?sslmode=verify-full`
 *   - connection options; `{}` takes everything from the variables PGHOST, PGUSER and so on
 * @throws LockError `InvalidArgument` that names the setting. That a server is down is only reported by the first
 *   operation.
 * @example
 * ```ts
 * import postgres from "postgres";
 * import { createPostgresBackend, setupSchema } from "syncguard/postgres";
 *
 * const sql = postgres("postgres://app:secret@localhost/app");
 * await setupSchema(sql);
 * const backend = createPostgresBackend(sql);
 * await using held = await backend.lock("report:nightly", { ttlMs: 30_000 });
 * ```
 */
export function createPostgresBackend(
  sql: PostgresClient | string | PostgresConnectionOptions,
  options: PostgresBackendOptions = {},
): SyncGuardBackend<PostgresCapabilities> {
  const backendOptions = withoutNulls(options);
  checkOptions(backendOptions);
  checkDisposal(backendOptions);
  const { store, transport } = open(sql, backendOptions);
  return createBackend(store, backendOptions, transport, guarding(store));
}

/** The default backend on PostgreSQL, which is given only a URL. It creates missing tables at their first use. */
export function createPostgresBackendOfUrl(
  url: string,
  operationTimeoutMs?: number,
): SyncGuardBackend<PostgresCapabilities> {
  const locks: PostgresLockOptions = { createsTables: true };
  copyGiven(locks, { operationTimeoutMs }, "operationTimeoutMs");
  const target = readConnection(url);
  const store = connectNatively(target, locks, {});
  const transport = tellTransport("PostgreSQL", "native", `a connection of its own, by ${GIVEN}`);
  return createBackend(store, {}, transport, guarding(store));
}

/**
 * Creates the tables and indexes that are missing. Call it before the first lock, as often and in as many processes as you
 * like. It also works on tables that SyncGuard 2 for TypeScript has created.
 *
 * Needs the right to create tables, and no rights if nothing is missing. It keeps nobody who uses the tables waiting: a change
 * waits until no long transaction has them open.
 *
 * @param sql - as for {@link createPostgresBackend}
 * @throws LockError `InvalidArgument` for options, `AuthFailed` for missing rights, `NetworkTimeout` that names who has had a table open for a
 *   minute, and the errors of connecting
 * @example
 * ```ts
 * import { setupSchema } from "syncguard/postgres";
 *
 * await setupSchema("postgres://app:secret@localhost/app");
 * ```
 */
export async function setupSchema(
  sql: PostgresClient | string | PostgresConnectionOptions,
  options: PostgresSchemaOptions = {},
): Promise<void> {
  const schemaOptions = withoutNulls(options);
  checkOptions(schemaOptions);
  const { store } = open(sql, schemaOptions);
  try {
    await store.setupSchema();
  } finally {
    await store.close();
  }
}

function open(
  sql: PostgresClient | string | PostgresConnectionOptions,
  options: PostgresBackendOptions,
): { store: Store; transport: BackendTransport } {
  return openOn(sql, options.transport, {
    ...{ name: "PostgreSQL", clients: "a client", isClient, readConnection, readClient },
    connect: (target, client) => {
      const locks = lockSettings(options, target.operationTimeoutMs);
      return connectNatively(target, locks, options, client);
    },
    drive: (client) => {
      const store = openPostgresOverClient(runOnClient(client), lockSettings(options));
      return hearing(tellingOfQueues(store, client), client, CONNECTION_EVENTS);
    },
  });
}

/** Backends with the same options share their connections, so `poolSize` counts for all of them together. */
const connectionOf = shareConnections(
  (
    { settings }: { settings: PostgresSettings; locks: PostgresLockOptions },
    client: WeakRef<PostgresClient>,
  ) => createPostgresConnection(settings, currentLogin(client)),
);

function connectNatively(
  target: Target,
  locks: PostgresLockOptions,
  options: PostgresBackendOptions,
  client?: PostgresClient,
): Store {
  const settings = copyGiven(withOptions(target.connection, options), locks, "operationTimeoutMs");
  const { password } = target;
  if (password !== undefined) settings.needsLogin = true;
  if (client !== undefined) return openPostgres(connectionOf(client, { settings, locks }), locks);
  const login = password === undefined ? undefined : () => loginOf(target);
  return openPostgres(createPostgresConnection(settings, login), locks);
}

function withOptions(target: PostgresSettings, options: PostgresBackendOptions): PostgresSettings {
  const tls = withNodeRoots(target.tls);
  const connection = copyGiven({ ...target }, { tls }, "tls");
  return copyGiven(connection, options, "connectTimeoutMs", "poolSize", "prepare");
}

function lockSettings(
  options: PostgresBackendOptions,
  timeoutOfClient?: number,
): PostgresLockOptions {
  const all = { operationTimeoutMs: timeoutOfClient, ...options };
  const tables = ["tableName", "fenceTableName"] as const;
  const names = ["cleanupInIsLocked", "operationTimeoutMs", "durableReleases"] as const;
  return copyGiven<PostgresLockOptions>({}, all, ...tables, ...names);
}

const OPTIONS = Object.keys({
  tableName: true,
  fenceTableName: true,
  operationTimeoutMs: true,
  connectTimeoutMs: true,
  poolSize: true,
  durableReleases: true,
  prepare: true,
  transport: true,
  cleanupInIsLocked: true,
  onReleaseError: true,
  onLost: true,
  disposeTimeoutMs: true,
} satisfies Record<keyof PostgresBackendOptions, true>);

function checkOptions(options: unknown): asserts options is PostgresBackendOptions {
  checkServerOptions(options);
  checkKnownOptions(options as object, OPTIONS, "PostgreSQL backend option", {
    connectionTimeoutMillis: "connectTimeoutMs",
    query_timeout: "operationTimeoutMs",
    max: "poolSize",
    table: "tableName",
  });
  const { tableName, fenceTableName, durableReleases, prepare, poolSize } = options as Record<
    keyof PostgresBackendOptions,
    unknown
  >;
  checkStrings({ tableName, fenceTableName });
  checkBooleans({ durableReleases, prepare });
  if (poolSize !== undefined && !isCount(poolSize)) {
    throw invalid("poolSize must be a whole number from 1 to 10000");
  }
}
