/** Processes on the TypeScript library and on this one share two tables. */

import postgres from "postgres";
import { afterAll, beforeAll, expect, test } from "vitest";
import { getByKeyRaw } from "syncguard";
import { createPostgresBackend, setupSchema } from "syncguard/postgres";
import { run } from "../support/child";
import { type PostgresServer, startPostgres, USER } from "../support/postgres";
import { type Backend, newKey, take } from "../support/suite";
import { until } from "../support/until";
// @ts-expect-error a program of its own, in plain JavaScript
import { typescriptLibrary } from "./fixtures/typescript-library.mjs";

type Library = {
  acquire: (opts: {
    key: string;
    ttlMs: number;
  }) => Promise<{ ok: boolean; lockId: string; fence: string; expiresAtMs: number }>;
  release: (opts: { lockId: string }) => Promise<{ ok: boolean }>;
  extend: (opts: { lockId: string; ttlMs: number }) => Promise<{ ok: boolean }>;
  read: (opts: { key: string }) => Promise<Record<string, unknown> | null>;
};
type Report = { granted: number; expired: number; byTheOther: number; wrong: string[] };

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
  await sql`CREATE TABLE given (at BIGSERIAL PRIMARY KEY, key TEXT NOT NULL, fence TEXT NOT NULL)`;
  backend = createPostgresBackend(server.url);
  theirs = (typescriptLibrary as (client: unknown) => Library)(sql);
});
afterAll(async () => {
  await backend.close();
  await sql.end();
  await server.stop();
});

test("four processes of both kinds exclude each other", { timeout: 120_000 }, async () => {
  const url = server.url.replace("?sslmode=disable", "");
  const goal = 100;
  const fleet = [
    ["native", "ours"],
    ["native", "theirs"],
    ["client", "ours"],
    ["client", "theirs"],
  ].map(([transport, mainly]) =>
    run("node", "../../postgres/fixtures/fleet.mjs", [url, `${transport}`, `${mainly}`, `${goal}`]),
  );
  const reports: Report[] = [];
  for (const { code, stdout, stderr } of await Promise.all(fleet)) {
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    reports.push(JSON.parse(stdout) as Report);
  }
  expect(reports.flatMap(({ wrong }) => wrong)).toEqual([]);
  for (const { granted, byTheOther } of reports) {
    expect(granted).toBeGreaterThanOrEqual(goal);
    expect(byTheOther).toBeGreaterThan(10);
  }
  const rows = await sql<{ key: string; fences: string[] }[]>`
    SELECT key, array_agg(fence ORDER BY at) AS fences FROM given GROUP BY key`;
  expect(rows).toHaveLength(3);
  let count = 0;
  for (const { fences } of rows) {
    expect(fences).toEqual([...new Set(fences)].sort());
    count += fences.length;
  }
  expect(count).toBe(reports.reduce((sum, { granted }) => sum + granted, 0));
});

test("what they store is read, extended and released", async () => {
  for (let round = 0; round < 12; round += 1) {
    const key = newKey();
    const held = await theirs.acquire({ key, ttlMs: 5_000 });
    expect(await backend.acquire({ key, ttlMs: 5_000 })).toMatchObject({ ok: false });
    expect(await getByKeyRaw(backend, key)).toMatchObject({
      key,
      lockId: held.lockId,
      fence: held.fence,
      expiresAtMs: held.expiresAtMs,
    });
    const extended = await backend.extend({ lockId: held.lockId, ttlMs: 60_000 });
    expect(await theirs.read({ key })).toMatchObject({
      lockId: held.lockId,
      expiresAtMs: extended.ok && extended.expiresAtMs,
    });
    expect(await backend.release({ lockId: held.lockId })).toEqual({ ok: true });
    expect(await theirs.read({ key })).toBeNull();
    expect((await take(backend, key)).fence).toBe("000000000000002");
  }
});

test("what we store is read, extended and released", async () => {
  const key = newKey();
  const held = await take(backend, key);
  const { lockId } = held;
  expect(await theirs.acquire({ key, ttlMs: 5_000 })).toEqual({ ok: false });
  expect(await theirs.read({ key })).toMatchObject({ key, lockId, fence: held.fence });
  expect(await theirs.extend({ lockId, ttlMs: 60_000 })).toMatchObject({ ok: true });
  expect(await theirs.release({ lockId })).toEqual({ ok: true });
  expect(await backend.isLocked({ key })).toBe(false);
  expect(await theirs.acquire({ key, ttlMs: 5_000 })).toMatchObject({ fence: "000000000000002" });
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

test("a lock counts for as long on both sides", async () => {
  const key = newKey();
  const held = await take(backend, key, 100);
  await until(async () => {
    const [row] = await sql`SELECT extract(epoch FROM clock_timestamp()) * 1000 AS now_ms`;
    return Number(row?.now_ms) > held.expiresAtMs;
  });
  // Within the tolerance it is still held, by the word of either.
  expect(await backend.isLocked({ key })).toBe(true);
  expect(await theirs.acquire({ key, ttlMs: 5_000 })).toEqual({ ok: false });
  await until(async () => !(await backend.isLocked({ key })));
  expect(await theirs.acquire({ key, ttlMs: 5_000 })).toMatchObject({
    ok: true,
    fence: "000000000000002",
  });
});
