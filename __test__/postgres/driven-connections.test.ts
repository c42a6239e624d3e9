/** Clients that are driven, and what they show of their connections. */

import { Pool } from "pg";
import postgres from "postgres";
import { expect, onTestFinished, test } from "vitest";
import {
  createPostgresBackend,
  type PostgresBackendOptions,
  type PostgresClient,
  setupSchema,
} from "syncguard/postgres";
import { type PostgresServer, startPostgres } from "../support/postgres";
import { type Backend, newKey } from "../support/suite";
import { until } from "../support/until";

const OPTIONS: PostgresBackendOptions = { transport: "client", onLost: () => undefined };

async function start(): Promise<PostgresServer> {
  const server = await startPostgres();
  onTestFinished(server.stop);
  await setupSchema(server.url);
  return server;
}

/** Locks of which one extends itself, after a hundred seconds. */
async function hold(backend: Backend): Promise<AbortSignal[]> {
  return [
    (await backend.lock(newKey(), { ttlMs: 300_000 })).signal,
    (await backend.lock(newKey(), { ttlMs: 300_000, autoExtend: true })).signal,
  ];
}

async function areTold(signals: readonly AbortSignal[]): Promise<void> {
  await until(() => signals.every((signal) => signal.aborted));
  for (const signal of signals) expect(signal.reason).toMatchObject({ code: "LockLost" });
}

/** Ends the server, and starts it without the locks that it had. */
async function comesBackEmpty(server: PostgresServer, whileItIsAway: () => Promise<void>) {
  await server.kill();
  await whileItIsAway();
  await server.start();
  const admin = postgres(server.url);
  await admin`DELETE FROM syncguard_locks`;
  await admin.end();
}

const succeeds = (call: () => PromiseLike<unknown>): Promise<boolean> =>
  Promise.resolve(call()).then(
    () => true,
    () => false,
  );

test("a pool of pg has lost a connection, and has one again", async () => {
  const server = await start();
  const pool = new Pool({ connectionString: server.url });
  onTestFinished(() => pool.end());
  const errors: unknown[] = [];
  pool.on("error", (error) => errors.push(error));
  const listeners = () => pool.eventNames().map((event) => [event, pool.listenerCount(event)]);
  const before = listeners();
  const backends = Array.from({ length: 11 }, () => createPostgresBackend(pool, OPTIONS));
  const backend = backends[0]!;
  const signals = await hold(backend);
  expect(listeners().every(([, count]) => count === 1)).toBe(true);
  await comesBackEmpty(server, () => until(() => errors.length > 0));
  // It connects for its user, and not for locks.
  await until(() => succeeds(() => pool.query("SELECT 1")));
  await areTold(signals);
  for (const each of backends) await each.close();
  expect(listeners()).toEqual(before);
});

test("what a pool of pg ends itself is no loss", async () => {
  const server = await start();
  const pool = new Pool({ connectionString: server.url });
  onTestFinished(() => pool.end());
  const backend = createPostgresBackend(pool, OPTIONS);
  onTestFinished(backend.close);
  const signals = await hold(backend);
  const admin = postgres(server.url);
  onTestFinished(() => admin.end());
  await admin`DELETE FROM syncguard_locks`;
  let removed = 0;
  pool.on("remove", () => (removed += 1));
  pool.options.idleTimeoutMillis = 1;
  await pool.query("SELECT 1");
  await until(() => removed > 0);
  // What these calls would have asked after is answered before the last of them.
  for (let call = 0; call < 50; call += 1) await backend.isLocked({ key: newKey() });
  expect(signals.map((signal) => signal.aborted)).toEqual([false, false]);
});

test("a call has lost a connection of postgres.js, and another one has got one", async () => {
  const server = await start();
  const sql = postgres(server.url, { onnotice: () => undefined });
  onTestFinished(() => sql.end());
  const backend = createPostgresBackend(sql as PostgresClient, OPTIONS);
  onTestFinished(backend.close);
  const signals = await hold(backend);
  const works = () => succeeds(() => backend.isLocked({ key: newKey() }));
  await comesBackEmpty(server, async () => expect(await works()).toBe(false));
  await until(works);
  await areTold(signals);
});
