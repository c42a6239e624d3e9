/** What the command line has of each store: options, how it is opened, and what is said of how it is set up. */

import type { StoreKind } from "../default/backend.js";
import { createFirestoreBackend } from "../firestore/backend.js";
import { connectionOfUrl } from "../firestore/connection.js";
import type { SyncGuardBackend } from "../values/types.js";
import { createPostgresBackend, createPostgresBackendOfUrl } from "../postgres/backend.js";
import { createRedisBackend } from "../redis/backend.js";
import { createSqliteBackend, sqlitePathOfUrl } from "../sqlite/backend.js";
import { type Check, type Facts, warn } from "./doctor/check.js";
import { judgePostgres } from "./doctor/postgres.js";
import { judgeRedis } from "./doctor/redis.js";
import { judgeSqlite } from "./doctor/sqlite.js";
import { type Options, text, type Values } from "./values.js";

/** A URL, what it is called in messages, and what else says how a store is opened. */
type Opening = {
  readonly url: string;
  readonly source: string;
  readonly values: Values;
  readonly operationTimeoutMs: number | undefined;
  /** Whether tables that are missing may be made. */
  readonly createsTables: boolean;
};

type StoreCommands = {
  readonly name: string;
  /** What no other store has. */
  readonly options: Options;
  open(opening: Opening): SyncGuardBackend;
  judge(facts: Facts, values: Values): Check[];
};

export const STORES: Readonly<Record<StoreKind, StoreCommands>> = {
  redis: {
    name: "Redis",
    options: {
      "key-prefix": {
        type: "string",
        value: "NAME",
        help: "Redis: the backend's keyPrefix; default syncguard",
      },
      "client-key-prefix": {
        type: "string",
        value: "TEXT",
        help: "Redis: the client's own key prefix (ioredis: keyPrefix)",
      },
    },
    open: ({ url, values, operationTimeoutMs }) =>
      createRedisBackend(
        { url, clientKeyPrefix: text(values, "client-key-prefix") },
        { keyPrefix: text(values, "key-prefix"), operationTimeoutMs },
      ),
    judge: judgeRedis,
  },
  postgres: {
    name: "PostgreSQL",
    options: {
      "table-name": {
        type: "string",
        value: "NAME",
        help: "PostgreSQL: the table of locks; default syncguard_locks",
      },
      "fence-table-name": {
        type: "string",
        value: "NAME",
        help: "PostgreSQL: the table of fences; default syncguard_fence_counters",
      },
    },
    open({ url, values, operationTimeoutMs, createsTables }) {
      const names = tableNames(values);
      // With names of tables, a typo must not make tables that nobody else uses.
      if (createsTables && Object.keys(names).length === 0) {
        return createPostgresBackendOfUrl(url, operationTimeoutMs);
      }
      return createPostgresBackend(url, { ...names, operationTimeoutMs });
    },
    judge(facts, values) {
      const { tableName = "syncguard_locks", fenceTableName = "syncguard_fence_counters" } =
        tableNames(values);
      return judgePostgres(facts, tableName, fenceTableName);
    },
  },
  firestore: {
    name: "Firestore",
    options: {
      collection: {
        type: "string",
        value: "NAME",
        help: "Firestore: the collection of locks; default locks",
      },
      "fence-collection": {
        type: "string",
        value: "NAME",
        help: "Firestore: the collection of fences; default fence_counters",
      },
    },
    open: ({ url, values, operationTimeoutMs }) =>
      createFirestoreBackend(connectionOfUrl(url), {
        collection: text(values, "collection"),
        fenceCollection: text(values, "fence-collection"),
        operationTimeoutMs,
      }),
    judge: () =>
      process.env.FIRESTORE_EMULATOR_HOST === undefined
        ? []
        : [warn("emulator", "this is an emulator", "unset FIRESTORE_EMULATOR_HOST in production")],
  },
  sqlite: {
    name: "SQLite",
    options: {
      "allow-network-file-system": {
        type: "boolean",
        help: "SQLite: as the option of that name; no other machine may use the file",
      },
    },
    open: ({ url, source, values, operationTimeoutMs }) =>
      createSqliteBackend({
        path: sqlitePathOfUrl(url, source),
        operationTimeoutMs,
        allowNetworkFileSystem: values["allow-network-file-system"] === true,
      }),
    judge: judgeSqlite,
  },
};

/** The options that one store has and others do not. */
export const OPTIONS_OF_STORES: Options = Object.assign(
  {},
  ...Object.values(STORES).map(({ options }) => options),
) as Options;

/** The options for tables, as the API takes them. */
export function tableNames(values: Values): { tableName?: string; fenceTableName?: string } {
  const names: { tableName?: string; fenceTableName?: string } = {};
  const [tableName, fenceTableName] = [
    text(values, "table-name"),
    text(values, "fence-table-name"),
  ];
  if (tableName !== undefined) names.tableName = tableName;
  if (fenceTableName !== undefined) names.fenceTableName = fenceTableName;
  return names;
}
