/** What the tests of guards share: a server with a table to write in, a backend, and short forms. */

import postgres from "postgres";
import { afterAll, beforeAll, expect } from "vitest";
import type { HeldLock, LockError, SyncGuardBackend } from "syncguard";
import { createPostgresBackend, type PostgresCapabilities, setupSchema } from "syncguard/postgres";
import { lockError as anyLockError } from "../support/errors";
import { type PostgresServer, startPostgres, USER } from "../support/postgres";

export let server: PostgresServer;
export let sql: postgres.Sql;
export let backend: SyncGuardBackend<PostgresCapabilities>;
beforeAll(async () => {
  server = await startPostgres();
  sql = connect();
  await setupSchema(server.socketUrl);
  await sql`CREATE TABLE sums (id text PRIMARY KEY, n int NOT NULL)`;
  backend = createPostgresBackend(server.socketUrl, { onLost: () => undefined });
});
afterAll(async () => {
  await backend.close();
  await sql.end();
  await server.stop();
});

export function connect(options: object = {}): postgres.Sql {
  const { folder: host, port } = server;
  const all = { host, port, user: USER, database: "postgres", onnotice: () => undefined };
  return postgres({ ...all, ...options });
}

export function pgSettings(): { host: string; port: number; user: string; database: string } {
  return { host: server.folder, port: server.port, user: USER, database: "postgres" };
}

/** The LockError of that code that a promise is rejected with. */
export async function lockError(promise: Promise<unknown>, code: string): Promise<LockError> {
  const error = await anyLockError(promise);
  expect(error.code).toBe(code);
  return error;
}

/** A lock, and another holder that has taken it over since. */
export async function overtaken(key: string): Promise<HeldLock<PostgresCapabilities>> {
  const stale = await backend.lock(key);
  await sql`UPDATE syncguard_locks SET expires_at_ms = 1 WHERE lock_id = ${stale.lockId}`;
  await backend.lock(key);
  return stale;
}

export const INSERT = "INSERT INTO sums VALUES ($1, 1)";
