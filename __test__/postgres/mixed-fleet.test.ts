/** Processes on the TypeScript library and on this one share two tables. */

import postgres from "postgres";
import { afterAll, beforeAll, expect, test } from "vitest";
import { getByKeyRaw } from "syncguard";
import { createPostgresBackend, setupSchema } from "syncguard/postgres";
import { type Library, testFleet, testSides } from "../support/mixed-fleet";
import { type PostgresServer, startPostgres, USER } from "../support/postgres";
import { type Backend, newKey } from "../support/suite";
// @ts-expect-error a program of its own, in plain JavaScript
import { typescriptLibrary } from "./fixtures/typescript-library.mjs";

let server: PostgresServer;
let sql: postgres.Sql;
let backend: Backend;
let theirs: Library;
beforeAll(async () => {
  server = await startPostgres();
  sql = postgres({
    host: server.folder,
    user: USER,
    database: "postgres",
    port: server.port,
    onnotice: () => undefined,
  });
  await setupSchema(server.url);
  await sql`CREATE TABLE inside (key TEXT PRIMARY KEY)`;
  await sql`CREATE TABLE reading (lock_id TEXT PRIMARY KEY, key TEXT NOT NULL)`;
  await sql`CREATE TABLE given (at BIGSERIAL PRIMARY KEY, key TEXT NOT NULL, fence TEXT NOT NULL)`;
  backend = createPostgresBackend(server.url);
  theirs = (typescriptLibrary as (client: unknown) => Library)(sql);
});
afterAll(async () => {
  await backend.close();
  await sql.end();
  await server.stop();
});

testFleet({
  program: "../../postgres/fixtures/fleet.mjs",
  members: () => {
    const url = server.url.replace("?sslmode=disable", "");
    const kinds = ["native ours", "native theirs", "client ours", "client theirs"];
    return kinds.map((kind) => [url, ...kind.split(" ")]);
  },
  goal: 100,
  given: async () => {
    const rows = await sql<{ fences: string[] }[]>`
      SELECT array_agg(fence ORDER BY at) AS fences FROM given GROUP BY key`;
    return rows.map(({ fences }) => fences);
  },
});

testSides({
  ours: () => backend,
  theirs: () => theirs,
  nowMs: async () => {
    const [row] = await sql`SELECT extract(epoch FROM clock_timestamp()) * 1000 AS now_ms`;
    return Number(row?.now_ms);
  },
});

test("a label is not shown for a lock that another writer took", async () => {
  const key = newKey();
  const labelled = await backend.acquire({ key, ttlMs: 5_000, owner: "ours" });
  expect((await getByKeyRaw(backend, key))?.owner).toBe("ours");
  if (!labelled.ok) throw new Error("expected the lock");
  // It ends and stays in the table, label and all, until they write over it.
  await sql`UPDATE syncguard_locks SET expires_at_ms = 1 WHERE lock_id = ${labelled.lockId}`;
  expect(await theirs.acquire({ key, ttlMs: 5_000 })).toMatchObject({ ok: true });
  expect(await getByKeyRaw(backend, key)).toMatchObject({ key });
  expect(await getByKeyRaw(backend, key)).not.toHaveProperty("owner");
});
