/** `syncguard/postgres` */

import "./native/required.js";
import { createOwnLock } from "./backend/lock.js";
import type { ClosableLock } from "./values/types.js";
import type {
  GuardQuery,
  PostgresDone,
  PostgresGuard,
  PostgresTransaction,
} from "./postgres/members.js";
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
  type GuardQuery,
  type PostgresDone,
  type PostgresGuard,
  type PostgresTransaction,
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

/**
 * `lock()` bound to a PostgreSQL backend of its own, which `lock.close()` closes.
 *
 * @param sql - as for {@link createPostgresBackend}; the tables must exist
 * @param options - as for {@link createPostgresBackend}
 * @throws LockError `InvalidArgument` that names the setting
 * @example
 * ```ts
 * import { createLock } from "syncguard/postgres";
 *
 * const lock = createLock("postgres://app:secret@localhost/app");
 * await lock(({ fence }) => console.log("working under fence", fence), { key: "report:nightly" });
 * ```
 */
export function createLock(
  sql: PostgresClient | string | PostgresConnectionOptions,
  options?: PostgresBackendOptions,
): ClosableLock<PostgresCapabilities> {
  return createOwnLock(createPostgresBackend(sql, options));
}
