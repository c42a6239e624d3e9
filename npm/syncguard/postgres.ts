/** `syncguard/postgres` */

import { notBuilt } from "./not-built.js";
import type {
  AsyncLock,
  BackendCapabilities,
  CommonBackendOptions,
  SyncGuardBackend,
} from "./types.js";

/** PostgreSQL gives fencing tokens, and its clock decides. */
export interface PostgresCapabilities extends BackendCapabilities {
  backend: "postgres";
  supportsFencing: true;
  timeAuthority: "server";
}

/** Options of the PostgreSQL backend. */
export interface PostgresBackendOptions extends CommonBackendOptions {
  /** The table of locks. Default `"syncguard_locks"`. */
  tableName?: string | undefined;
  /** The table of fence counters. Default `"syncguard_fence_counters"`. */
  fenceTableName?: string | undefined;
}

/** The options with nothing left open. */
export interface PostgresConfig {
  tableName: string;
  fenceTableName: string;
  cleanupInIsLocked: boolean;
}

/**
 * A backend that keeps locks in PostgreSQL.
 *
 * @param sql - a postgres.js or pg client, a URL, or connection options
 * @throws LockError `InvalidArgument`: not built yet
 */
export function createPostgresBackend(
  sql: unknown,
  options?: PostgresBackendOptions,
): SyncGuardBackend<PostgresCapabilities>;
export function createPostgresBackend(): SyncGuardBackend<PostgresCapabilities> {
  return notBuilt("PostgreSQL");
}

/** `lock()` bound to a PostgreSQL backend: see {@link createPostgresBackend}. */
export function createLock(
  sql: unknown,
  options?: PostgresBackendOptions,
): AsyncLock<PostgresCapabilities>;
export function createLock(): AsyncLock<PostgresCapabilities> {
  return notBuilt("PostgreSQL");
}

/**
 * Creates the tables and indexes, if they are not there. Call it once, before the first lock.
 *
 * @throws LockError `InvalidArgument`: not built yet
 */
export function setupSchema(
  sql: unknown,
  options?: Pick<PostgresBackendOptions, "tableName" | "fenceTableName">,
): Promise<void>;
export async function setupSchema(): Promise<void> {
  notBuilt("PostgreSQL");
}
