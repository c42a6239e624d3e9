/** `syncguard/postgres` */

import { createAutoLock } from "./lock/lock.js";
import type { BoundLock } from "./lock/types.js";
import { createPostgresBackend, setupSchema } from "./postgres/backend.js";
import type {
  PgClient,
  PostgresBackendOptions,
  PostgresCapabilities,
  PostgresClient,
  PostgresConfig,
  PostgresConnectionOptions,
  PostgresJsClient,
  PostgresSchemaOptions,
  PostgresSslOptions,
} from "./postgres/types.js";

export {
  createPostgresBackend,
  setupSchema,
  type PgClient,
  type PostgresBackendOptions,
  type PostgresCapabilities,
  type PostgresClient,
  type PostgresConfig,
  type PostgresConnectionOptions,
  type PostgresJsClient,
  type PostgresSchemaOptions,
  type PostgresSslOptions,
};

/** `lock()` bound to a PostgreSQL backend: see {@link createPostgresBackend}. */
export function createLock(
  sql: PostgresClient | string | PostgresConnectionOptions,
  options?: PostgresBackendOptions,
): BoundLock<PostgresCapabilities> {
  return createAutoLock(createPostgresBackend(sql, options));
}
