/** Servers that fail under load, and what users hear of it. */

import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { join } from "node:path";
import { inspect } from "node:util";
import { Pool } from "pg";
import postgres from "postgres";
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import type { LockErrorCode } from "syncguard";
import { createPostgresBackend, setupSchema } from "syncguard/postgres";
import { lockError } from "../support/errors";
import { expectFree, GRACE_MS, load, TIMEOUT_MS } from "../support/load";
import { freePort } from "../support/ports";
import {
  PASSWORD,
  type PostgresServer,
  startPgBouncer,
  startPostgres,
  USER,
} from "../support/postgres";
import { type Backend, newKey, take } from "../support/suite";
import { until } from "../support/until";

const OPTIONS = { operationTimeoutMs: TIMEOUT_MS, connectTimeoutMs: 300 };
const BROKEN: readonly LockErrorCode[] = ["ServiceUnavailable", "NetworkTimeout"];

/**
 * postgres.js asks a new connection for the types of arrays and awaits that query nowhere: a connection that ends meanwhile, by the server
 * or by `end({ timeout: 0 })`, makes it an unhandled rejection.
 */
const SURVIVES = { fetch_types: false };

let server: PostgresServer;
/** A session beside the backends. */
let admin: postgres.Sql;
beforeAll(async () => {
  server = await startPostgres();
  admin = postgres({
    host: server.folder,
    port: server.port,
    user: USER,
    database: "postgres",
    connection: { application_name: "admin" },
    onnotice: () => undefined,
    ...SURVIVES,
  });
  // postgres.js waits for ever if the first that it is asked for is a session.
  await admin`SELECT`;
  await setupSchema(server.url);
});
afterAll(async () => {
  await admin.end();
  await server.stop();
});

/** How many sessions `name` has that are in use. */
async function busy(name: string): Promise<number> {
  const rows = await admin`
    SELECT FROM pg_stat_activity WHERE application_name = ${name} AND state <> 'idle'`;
  return rows.length;
}

const WAYS = ["native", "postgres.js", "pg"] as const;

describe.each(WAYS)("a server that fails under load, %s", (way) => {
  let backend: Backend;
  beforeEach(() => {
    // Without a password: its check takes the better part of the timeout where the native part is not optimised.
    const login = { host: server.folder, port: server.port, user: USER, database: "postgres" };
    const named = { ...login, application_name: "locks" };
    if (way === "native") {
      backend = createPostgresBackend(named, { ...OPTIONS, poolSize: 8 });
      return () => backend.close();
    }
    if (way === "pg") {
      const pool = new Pool({ ...named, max: 8, connectionTimeoutMillis: 300 });
      pool.on("error", () => undefined);
      backend = createPostgresBackend(pool, { ...OPTIONS, transport: "client" });
      return () => pool.end();
    }
    const sql = postgres({
      ...login,
      max: 8,
      backoff: false,
      connection: { application_name: "locks" },
      onnotice: () => undefined,
      ...SURVIVES,
    });
    backend = createPostgresBackend(sql, { ...OPTIONS, transport: "client" });
    return () => sql.end({ timeout: 1 });
  });

  test("pg_terminate_backend", async () => {
    const running = load(backend);
    for (let round = 0; round < 5; round += 1) {
      await running.more(50);
      await admin`
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'locks'`;
    }
    await running.more(50);
    const { slowestMs, codes } = await running.end();
    for (const code of codes) expect(BROKEN).toContain(code);
    expect(slowestMs).toBeLessThan(TIMEOUT_MS + GRACE_MS);
    // Those whose answer was lost are undone, and no session is left at work.
    await expectFree(backend, running.failed);
    await until(async () => (await busy("locks")) === 0);
  });

  test("immediate shutdown and restart", async () => {
    const running = load(backend);
    await running.more(50);
    await server.kill();
    await until(() => running.stats.codes.size > 0);
    await server.start();
    await running.more(50);
    const { slowestMs, codes } = await running.end();
    for (const code of codes) expect(BROKEN).toContain(code);
    expect(slowestMs).toBeLessThan(TIMEOUT_MS + GRACE_MS);
    await admin`SELECT 1`.catch(() => undefined);
    await until(async () => (await busy("locks").catch(() => 1)) === 0);
  });
});

describe.each(WAYS)("what users hear, %s", (way) => {
  function connectTo(url: string): Backend {
    if (way === "native") return createPostgresBackend(url, OPTIONS);
    const plain = url.replace("?sslmode=disable", "");
    if (way === "pg") {
      const pool = new Pool({ connectionString: plain, connectionTimeoutMillis: 300 });
      onTestFinished(() => pool.end());
      return createPostgresBackend(pool, { ...OPTIONS, transport: "client" });
    }
    const sql = postgres(plain, { connect_timeout: 0.3, backoff: false, ...SURVIVES });
    onTestFinished(() => sql.end({ timeout: 0 }));
    return createPostgresBackend(sql, { ...OPTIONS, transport: "client" });
  }

  async function failure(backend: Backend) {
    onTestFinished(backend.close);
    const started = performance.now();
    const error = await lockError(backend.acquire({ key: newKey(), ttlMs: 5_000 }));
    expect(performance.now() - started).toBeLessThan(TIMEOUT_MS + GRACE_MS);
    expect(inspect(error, { depth: 9 })).not.toContain(PASSWORD);
    expect(inspect(error, { depth: 9 })).not.toContain(encodeURIComponent(PASSWORD));
    return error;
  }

  /** What the server says: on a busy machine that may be later than the limit, and then it is asked again. */
  async function answer(connect: () => Backend) {
    for (let tries = 1; ; tries += 1) {
      const error = await failure(connect());
      if (error.code !== "NetworkTimeout" || tries === 20) return error;
    }
  }

  test("the tables are missing", async () => {
    await admin`CREATE DATABASE empty`.catch(() => undefined);
    const url = server.url.replace("/postgres?", "/empty?");
    // The first connection to a new database may take longer than the limit.
    const first = postgres(url);
    await first`SELECT 1`;
    await first.end();
    const error = await answer(() => connectTo(url));
    expect(error.code).toBe("InvalidArgument");
    expect(error.message).toContain("setupSchema");
  });

  test("a wrong password", async () => {
    const error = await answer(() => connectTo(server.url.replace("%40signs", "%40lines")));
    expect(error.code).toBe("AuthFailed");
  });

  test("no such database", async () => {
    const error = await answer(() => connectTo(server.url.replace("/postgres?", "/nowhere?")));
    expect(error.code).toBe("InvalidArgument");
  });

  test("nobody there", async () => {
    const port = await freePort();
    const error = await failure(connectTo(server.url.replace(`:${server.port}/`, `:${port}/`)));
    expect(error.code).toBe("ServiceUnavailable");
  });

  test("a server that takes connections and says nothing", async () => {
    const sockets = new Set<Socket>();
    const silent = createServer((socket) => sockets.add(socket.on("error", () => undefined)));
    await once(silent.listen(0, "127.0.0.1"), "listening");
    onTestFinished(() => {
      for (const socket of sockets) socket.destroy();
      silent.close();
    });
    const { port } = silent.address() as AddressInfo;
    const error = await failure(connectTo(server.url.replace(`:${server.port}/`, `:${port}/`)));
    expect(BROKEN).toContain(error.code);
  });

  test("another session holds the row", async () => {
    const backend = connectTo(server.url);
    onTestFinished(backend.close);
    const held = await take(backend, newKey());
    const other = await admin.reserve();
    onTestFinished(() => {
      other.release();
    });
    await other`BEGIN`;
    await other`SELECT FROM syncguard_locks WHERE lock_id = ${held.lockId} FOR UPDATE`;
    const started = performance.now();
    const error = await lockError(backend.extend({ lockId: held.lockId, ttlMs: 5_000 }));
    expect(performance.now() - started).toBeLessThan(TIMEOUT_MS + GRACE_MS);
    expect(error.code).toBe("NetworkTimeout");
    await other`ROLLBACK`;
    await until(async () => {
      const extended = await backend.extend({ lockId: held.lockId, ttlMs: 5_000 });
      return extended.ok;
    });
  });
});

/** A backend with one connection, and a lock whose row the session `other` has locked. */
async function heldUp(operationTimeoutMs = TIMEOUT_MS) {
  const backend = createPostgresBackend(server.url, { operationTimeoutMs, poolSize: 1 });
  onTestFinished(backend.close);
  const held = await take(backend, newKey());
  const other = await admin.reserve();
  onTestFinished(() => {
    other.release();
  });
  await other`BEGIN`;
  await other`SELECT FROM syncguard_locks WHERE lock_id = ${held.lockId} FOR UPDATE`;
  return { backend, held, other };
}

test("a full pool", async () => {
  const { backend, held, other } = await heldUp();
  const [first, second] = await Promise.all([
    lockError(backend.extend({ lockId: held.lockId, ttlMs: 5_000 })),
    lockError(backend.isLocked({ key: newKey() })),
  ]);
  await other`ROLLBACK`;
  expect(first.code).toBe("NetworkTimeout");
  expect(second.code).toBe("RateLimited");
});

test("a full pool that gets nowhere keeps nobody longer than asked", async () => {
  const { backend, held, other } = await heldUp(20_000);
  const first = backend.isLocked({ key: newKey() });
  const stuck = [lockError(backend.extend({ lockId: held.lockId, ttlMs: 5_000 }))];
  for (let count = 0; count < 20; count += 1) {
    stuck.push(lockError(backend.isLocked({ key: newKey() })));
  }
  // Its answer is there, and waits for no other.
  expect(await Promise.race([first, ...stuck])).toBe(false);
  await until(async () => {
    const waiting = await admin`SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'`;
    return waiting.length > 0;
  });
  const started = performance.now();
  const late = await Promise.all(
    Array.from({ length: 5 }, async () => {
      const error = await lockError(
        backend.lock(newKey(), { acquisition: { timeoutMs: TIMEOUT_MS / 10 } }),
      );
      return { code: error.code, ms: performance.now() - started };
    }),
  );
  for (const { code, ms } of late) {
    expect(["NetworkTimeout", "AcquisitionTimeout", "RateLimited"]).toContain(code);
    // Long before those who have twenty seconds.
    expect(ms).toBeLessThan(10_000);
  }
  await other`ROLLBACK`;
  await Promise.allSettled(stuck);
});

test("a network that goes silent in the middle", async () => {
  let isOpen = true;
  const proxy = createServer((socket) => {
    const onward = connect(join(server.folder, `.s.PGSQL.${server.port}`));
    for (const [from, to] of [
      [socket, onward],
      [onward, socket],
    ] as const) {
      from.on("data", (bytes) => isOpen && to.write(bytes));
      from.on("close", () => to.destroy()).on("error", () => undefined);
    }
  });
  await once(proxy.listen(0, "127.0.0.1"), "listening");
  onTestFinished(() => {
    proxy.close();
  });
  const { port } = proxy.address() as AddressInfo;
  const backend = createPostgresBackend(`postgres://${USER}@127.0.0.1:${port}/postgres`, OPTIONS);
  onTestFinished(backend.close);
  const running = load(backend);
  await running.more(50);
  isOpen = false;
  await until(() => running.stats.codes.size > 0);
  isOpen = true;
  await running.more(50);
  const { slowestMs, codes } = await running.end();
  for (const code of codes) expect([...BROKEN, "RateLimited"]).toContain(code);
  expect(slowestMs).toBeLessThan(TIMEOUT_MS + GRACE_MS);
  await expectFree(backend, running.failed);
});

test("acquisitions that are cancelled by the dozen do no harm to a pooler", async () => {
  const pooler = await startPgBouncer(server);
  onTestFinished(pooler.stop);
  const backend = createPostgresBackend(pooler.url);
  onTestFinished(backend.close);
  const keys = Array.from({ length: 100 }, newKey);
  for (const key of keys) {
    const controller = new AbortController();
    const pending = backend.acquire({ key, ttlMs: 120_000, signal: controller.signal });
    setTimeout(() => {
      controller.abort();
    }, Math.random() * 8);
    const end = await pending.catch((error: unknown) => (error as { code: string }).code);
    if (typeof end === "string") expect(end).toBe("Aborted");
    else if (end.ok) await end.release();
    expect(typeof (await backend.isLocked({ key }))).toBe("boolean");
  }
  await expectFree(backend, keys);
});
