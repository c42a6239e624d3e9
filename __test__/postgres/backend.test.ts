/** The backend's own: schema, shared connections, options. */

import { inspect } from "node:util";
import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import {
  createLock,
  createPostgresBackend,
  type PostgresBackendOptions,
  type PostgresConnectionOptions,
  setupSchema,
} from "syncguard/postgres";
import { run, start } from "../support/child";
import { lockError, thrownLockError } from "../support/errors";
import { isFromTheClock } from "../support/fences";
import { PASSWORD, type PostgresServer, startPostgres, USER } from "../support/postgres";
import { newKey, take } from "../support/suite";
import { until } from "../support/until";

let server: PostgresServer;
let admin: postgres.Sql;
beforeAll(async () => {
  server = await startPostgres();
  admin = connect({ connection: { application_name: "admin" } });
  await setupSchema(server.socketUrl);
});
afterAll(async () => {
  await admin.end();
  await server.stop();
});

function connect(options: object = {}): postgres.Sql {
  const { folder: host, port } = server;
  const all = { host, port, user: USER, database: "postgres", onnotice: () => undefined };
  return postgres({ ...all, ...options });
}

async function sessions(name: string): Promise<number> {
  return (await admin`SELECT FROM pg_stat_activity WHERE application_name = ${name}`).length;
}

describe("setupSchema", () => {
  test("makes the tables and indexes that the TypeScript library makes, and places for labels and for what is done", async () => {
    await setupSchema(server.socketUrl, { tableName: "a_locks", fenceTableName: "a_fences" });
    const columns = await admin<{ name: string }[]>`
      SELECT table_name || '.' || column_name || ' ' || data_type AS name
      FROM information_schema.columns WHERE table_name IN ('a_locks', 'a_fences')
      ORDER BY table_name, ordinal_position`;
    expect(columns.map(({ name }) => name)).toEqual([
      "a_fences.fence_key text",
      "a_fences.fence bigint",
      "a_fences.key_debug text",
      "a_fences.done_due text",
      "a_fences.done_at_ms bigint",
      "a_fences.done_lock_id text",
      "a_locks.key text",
      "a_locks.lock_id text",
      "a_locks.expires_at_ms bigint",
      "a_locks.acquired_at_ms bigint",
      "a_locks.fence text",
      "a_locks.user_key text",
      "a_locks.owner text",
    ]);
    const indexes = await admin<{ indexname: string }[]>`
      SELECT indexname FROM pg_indexes WHERE tablename IN ('a_locks', 'a_fences') ORDER BY 1`;
    expect(indexes.map(({ indexname }) => indexname)).toEqual([
      "a_fences_pkey",
      "a_locks_pkey",
      "idx_a_locks_expires",
      "idx_a_locks_lock_id",
      "idx_a_locks_readers",
    ]);
  });

  test(
    "may run in several processes at once, each of which then ends",
    { timeout: 60_000 },
    async () => {
      await admin`CREATE DATABASE fresh`;
      const url = `postgres://${USER}:${encodeURIComponent(PASSWORD)}@127.0.0.1:${server.port}/fresh`;
      const all = Array.from({ length: 4 }, (_, index) => {
        const args = [url, `key:${index}`];
        return run("node", "../../postgres/fixtures/set-up.mjs", args);
      });
      for (const { code, stderr, stdout } of await Promise.all(all)) {
        expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
        expect(stdout).toContain("done");
      }
    },
  );

  test("lets a process end at once", async () => {
    const url = `postgres://${USER}:${encodeURIComponent(PASSWORD)}@127.0.0.1:${server.port}/postgres`;
    const program = start("node", "../../postgres/fixtures/set-up.mjs", [url, "ends"]);
    await program.printed("done");
    const { code, stdout } = await program.finished;
    expect(code).toBe(0);
    // An idle connection would keep it for longer.
    expect(Date.now() - Number(stdout.split(" ")[1])).toBeLessThan(4_500);
  });

  test.each(["native", "client"] as const)("is one transaction, %s", async (transport) => {
    const sql = connect();
    onTestFinished(() => sql.end());
    const tables = { tableName: `half_${transport}`, fenceTableName: `other_${transport}` };
    // The second table cannot be made: a type has its name. So the first is not made either.
    await admin`CREATE TYPE ${admin(tables.fenceTableName)} AS ENUM ()`;
    await lockError(setupSchema(sql, { ...tables, transport }));
    await admin`DROP TYPE ${admin(tables.fenceTableName)}`;
    const made = await admin`SELECT FROM pg_tables WHERE tablename = ${tables.tableName}`;
    expect(made).toHaveLength(0);
    await setupSchema(sql, { ...tables, transport });
  });

  test("works on tables of the TypeScript library, and leaves no session behind", async () => {
    await admin.unsafe(`
      CREATE TABLE old_locks (key TEXT PRIMARY KEY, lock_id TEXT NOT NULL, expires_at_ms BIGINT NOT NULL,
        acquired_at_ms BIGINT NOT NULL, fence TEXT NOT NULL, user_key TEXT NOT NULL);
      CREATE UNIQUE INDEX idx_old_locks_lock_id ON old_locks(lock_id);
      CREATE INDEX idx_old_locks_expires ON old_locks(expires_at_ms);
      CREATE TABLE old_fences (fence_key TEXT PRIMARY KEY, fence BIGINT NOT NULL DEFAULT 0)`);
    const tables = { tableName: "old_locks", fenceTableName: "old_fences" };
    const sql = connect({ connection: { application_name: "old" } });
    onTestFinished(() => sql.end());
    await setupSchema(sql, tables);
    await until(async () => (await sessions("old")) === 0);
    const backend = createPostgresBackend(sql, tables);
    onTestFinished(backend.close);
    expect((await take(backend, newKey())).fence).toSatisfy(isFromTheClock);
  });
});

describe("backends on one client", () => {
  test("share connections, and end them with the last", async () => {
    const sql = connect({ connection: { application_name: "shared" } });
    onTestFinished(() => sql.end());
    const [first, second] = [createPostgresBackend(sql), createPostgresBackend(sql)] as const;
    const key = newKey();
    const held = await take(first, key);
    expect(await second.isLocked({ key })).toBe(true);
    await setupSchema(sql);
    expect(await sessions("shared")).toBe(1);

    await first.close();
    await first.close();
    const closed = await lockError(first.isLocked({ key }));
    expect(closed).toMatchObject({
      code: "Aborted",
      message: "the backend is closed",
    });
    expect(await second.release({ lockId: held.lockId })).toEqual({ ok: true });
    await second.close();
    await until(async () => (await sessions("shared")) === 0);

    const third = createPostgresBackend(sql);
    onTestFinished(third.close);
    expect(await third.isLocked({ key })).toBe(false);
  });

  test("with other options have other connections", async () => {
    const sql = connect({ connection: { application_name: "apart" } });
    onTestFinished(() => sql.end());
    for (const options of [{}, { durableReleases: true }, { operationTimeoutMs: 700 }]) {
      const backend = createPostgresBackend(sql, options);
      onTestFinished(backend.close);
      await backend.isLocked({ key: newKey() });
    }
    expect(await sessions("apart")).toBe(3);
  });

  test("a client's pool is not touched", async () => {
    const sql = connect({ connection: { application_name: "untouched" } });
    const backend = createPostgresBackend(sql, { poolSize: 1 });
    await take(backend, newKey());
    await backend.close();
    expect(await sql`SELECT 1 AS one`).toEqual([{ one: 1 }]);
    await sql.end();
    // Nor do backends need it.
    const other = createPostgresBackend(sql);
    onTestFinished(other.close);
    await take(other, newKey());
  });
});

describe("connections", () => {
  test.each([1, 2])(
    "%i of them serve many operations, and a lone one after them",
    async (poolSize) => {
      const backend = createPostgresBackend(server.socketUrl, { poolSize });
      onTestFinished(backend.close);
      for (let round = 0; round < 5; round += 1) {
        const held = await Promise.all(Array.from({ length: 40 }, () => take(backend, newKey())));
        // One by one as they end, and so while others wait for a connection.
        await Promise.all(
          held.map(async ({ lockId }) => {
            expect(await backend.release({ lockId })).toEqual({ ok: true });
            expect(await backend.lookup({ lockId })).toBeNull();
          }),
        );
        expect(await backend.isLocked({ key: newKey() })).toBe(false);
      }
    },
  );

  test("ask a function for the password each time", async () => {
    const password = vi.fn(() => Promise.resolve(PASSWORD));
    const at = { host: "127.0.0.1", port: server.port, user: USER, database: "postgres", password };
    for (const [times, client] of [
      [1, at],
      [2, postgres(at)],
    ] as const) {
      const backend = createPostgresBackend(client);
      await take(backend, newKey());
      await backend.close();
      expect(password).toHaveBeenCalledTimes(times);
    }
    const name = "by function";
    const backend = createPostgresBackend({ ...at, application_name: name });
    onTestFinished(backend.close);
    await take(backend, newKey());
    password.mockRejectedValue(new Error(`${PASSWORD} has expired`));
    await admin`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = ${name}`;
    await until(async () => (await sessions(name)) === 0);
    const failed = async () => await lockError(backend.isLocked({ key: newKey() }));
    await until(async () => (await failed()).code === "AuthFailed");
    const error = await failed();
    expect(error.cause).toMatchObject({ message: "Error" });
    expect(inspect(error, { depth: 9 })).not.toContain(PASSWORD);
    const wrong = createPostgresBackend({
      ...at,
      password: () => Promise.reject(new Error(PASSWORD)),
    });
    onTestFinished(wrong.close);
    const never = await lockError(wrong.isLocked({ key: newKey() }));
    expect(never.code).toBe("AuthFailed");
    expect(inspect(never, { depth: 9 })).not.toContain(PASSWORD);
  });

  test("are what the variables say where nothing else is said", async () => {
    vi.stubEnv("PGHOST", server.folder);
    vi.stubEnv("PGPORT", String(server.port));
    vi.stubEnv("PGUSER", USER);
    vi.stubEnv("PGDATABASE", "postgres");
    const backend = createPostgresBackend({ application_name: "by variables" });
    onTestFinished(backend.close);
    await take(backend, newKey());
    expect(await sessions("by variables")).toBe(1);
  });

  test("have the settings that options ask for", async () => {
    const { folder: host, port } = server;
    const at = { host, port, user: USER, database: "postgres" };
    await admin`CREATE SCHEMA IF NOT EXISTS elsewhere`;
    const options = { ...at, connection: { search_path: "elsewhere" } };
    await setupSchema(options);
    const lock = createLock(options);
    expect(await lock(() => "done", { key: newKey() })).toBe("done");
    const rows = await admin`SELECT FROM elsewhere.syncguard_fence_counters`;
    expect(rows).toHaveLength(1);
  });
});

test("a session that may not write is told what it may be, and what may have made it so", async () => {
  await admin`CREATE ROLE reader LOGIN SUPERUSER`;
  await admin`ALTER ROLE reader SET default_transaction_read_only = on`;
  const { folder: host, port } = server;
  const at = { host, port, user: "reader", database: "postgres" };
  const backends = [
    createPostgresBackend(at),
    createPostgresBackend(connect({ user: "reader" }), { transport: "client" }),
  ];
  for (const backend of backends) {
    onTestFinished(backend.close);
    const error = await lockError(backend.acquire({ key: newKey(), ttlMs: 5_000 }));
    expect(error.code).toBe("ServiceUnavailable");
    expect(error.message).toContain(
      "a standby, a primary that accepts no writes, or default_transaction_read_only is on for this user, this database or the whole server (SQLSTATE 25006)",
    );
  }
});

describe("options are checked at creation", () => {
  test.each<[PostgresBackendOptions, string]>([
    [{ tableName: "" }, "tableName"],
    [{ tableName: 'a"b' }, "tableName"],
    [{ tableName: 7 as never }, "tableName"],
    [{ fenceTableName: "a; DROP TABLE b" }, "fenceTableName"],
    [{ tableName: "same", fenceTableName: "same" }, "Fence counter table must differ"],
    [{ cleanupInIsLocked: 1 as never }, "cleanupInIsLocked"],
    [{ durableReleases: "no" as never }, "durableReleases"],
    [{ prepare: 0 as never }, "prepare"],
    [{ operationTimeoutMs: 0 }, "operationTimeoutMs"],
    [{ operationTimeoutMs: Number.NaN }, "operationTimeoutMs"],
    [{ connectTimeoutMs: -1 }, "connectTimeoutMs"],
    [{ connectTimeoutMs: "5" as never }, "connectTimeoutMs"],
    [{ poolSize: 0 }, "poolSize"],
    [{ poolSize: 1.5 }, "poolSize"],
    [{ transport: "tcp" as never }, "transport"],
    [{ onReleaseError: "log" as never }, "onReleaseError"],
    [{ disposeTimeoutMs: 0 }, "disposeTimeoutMs"],
    [{ tablename: "a" } as never, "did you mean tableName?"],
    [{ colour: "red" } as never, "colour is not a PostgreSQL backend option"],
    ["table" as never, "options"],
  ])("of the backend: %j", (options, field) => {
    for (const client of ["postgres://h", connect()]) {
      const error = thrownLockError(() => createPostgresBackend(client, options));
      expect(error.code).toBe("InvalidArgument");
      expect(error.message).toContain(field);
    }
  });

  test.each<[PostgresConnectionOptions | string, string]>([
    ["", "sql must be"],
    [[] as never, "sql must be"],
    [undefined as never, "sql must be"],
    ["mysql://u:secret@h", "postgres://"],
    ["postgres://u:secret@h:port", "port"],
    ["postgres://u:secret@h?sslmode=secret", "sslmode"],
    ["postgres://u:secret@h?target_session_attrs=standby", "target_session_attrs"],
    ["postgres://u:secret@h?sslmod=verify-full", "did you mean sslmode?"],
    ["postgres://u:se?cret=secret@h/d", "? as %3F"],
    [{ databse: "secret" } as never, "did you mean database?"],
    [{ url: 7 as never }, "url"],
    [{ host: 7 as never }, "host"],
    [{ host: ["a", "b"], port: [1, 2, 3] }, "port"],
    [{ port: "secret" as never }, "port"],
    [{ port: 70_000 }, "port"],
    [{ path: "/secret" }, "path"],
    [{ password: 7 as never }, "password"],
    [{ ssl: "secret" as never }, "sslmode"],
    [{ ssl: { ca: 7 as never } }, "ssl.ca"],
    [{ ssl: { passphrase: "secret" } as never }, "ssl.passphrase"],
    [{ ssl: { cert: "secret" } }, "sslkey"],
    [{ connection: { a: {} as never } }, "connection"],
    [{ connection: { "a b": "secret" } }, "connection parameters"],
    [{ target_session_attrs: "standby" as never }, "target_session_attrs"],
    [{ hostname: "secret" } as never, "hostname is not a connection option: did you mean host?"],
    // One name for each setting; those of clients are read from clients.
    ...[
      ["connectionString", "url"],
      ["username", "user"],
      ["pass", "password"],
      ["max", "poolSize of the backend's options"],
      ["connect_timeout", "connectTimeoutMs of the backend's options"],
      ["connectionTimeoutMillis", "connectTimeoutMs of the backend's options"],
      ["connectTimeoutMs", "connectTimeoutMs of the backend's options"],
      ["prepare", "prepare of the backend's options"],
      ["statement_timeout", "connection.statement_timeout"],
      ["lock_timeout", "connection.lock_timeout"],
    ].map(([theirs = "", ours]): [PostgresConnectionOptions, string] => [
      { [theirs]: "secret" },
      `${theirs} is not a connection option: did you mean ${ours}?`,
    ]),
    [{ idle_timeout: 20 } as never, "idle_timeout is not a connection option"],
  ])("of the connection: %j", async (connection, field) => {
    const error = thrownLockError(() => createPostgresBackend(connection));
    expect(error.code).toBe("InvalidArgument");
    expect(error.message).toContain(field);
    expect(inspect(error)).not.toMatch(/secret/);
    expect((await lockError(setupSchema(connection))).message).toBe(error.message);
  });

  test("what URLs for other libraries have and locks do not need is passed over", () => {
    createPostgresBackend("postgres://h/d?pgbouncer=true", {});
  });
});
