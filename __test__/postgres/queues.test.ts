/** Clients that are driven, and have no connection free. */

import { Pool } from "pg";
import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { createPostgresBackend, setupSchema } from "syncguard/postgres";
import { lockError } from "../support/errors";
import { type PostgresServer, startPostgres } from "../support/postgres";
import { newKey, take } from "../support/suite";

describe("a lock that is asked for inside of a transaction of the same pool", () => {
  const QUEUED =
    /: no connection of the client's pool is free\. .*take the lock before the transaction/;
  let server: PostgresServer;
  beforeAll(async () => {
    server = await startPostgres();
    await setupSchema(server.url);
  });
  afterAll(() => server.stop());
  const limits = { transport: "client", operationTimeoutMs: 300 } as const;

  test.each([{}, { connectionTimeoutMillis: 100 }])(
    "says what it waits for, on pg %j",
    async (more) => {
      const pool = new Pool({ connectionString: server.url, max: 2, ...more });
      onTestFinished(() => pool.end());
      const backend = createPostgresBackend(pool, limits);
      onTestFinished(backend.close);
      const transactions = [await pool.connect(), await pool.connect()];
      for (const each of transactions) await each.query("BEGIN");
      const waiting = backend.lock(newKey(), { acquisition: { timeoutMs: 600 } });
      expect((await lockError(waiting)).message).toMatch(QUEUED);
      const asking = backend.acquire({ key: newKey(), ttlMs: 5_000 });
      expect((await lockError(asking)).message).toMatch(QUEUED);
      for (const each of transactions) await each.query("ROLLBACK");
      for (const each of transactions) each.release();
      await take(backend, newKey());
    },
  );

  test("says what it waits for, on postgres.js", async () => {
    const sql = postgres(server.url, { max: 1 });
    onTestFinished(() => sql.end());
    const backend = createPostgresBackend(sql, limits);
    onTestFinished(backend.close);
    await sql.begin(async () => {
      const refused = backend.acquire({ key: newKey(), ttlMs: 5_000 });
      expect((await lockError(refused)).message).toMatch(QUEUED);
    });
    await take(backend, newKey());
  });

  test("says nothing of it where a server is silent", async () => {
    const client = { query: vi.fn(() => new Promise<never>(() => undefined)) };
    const backend = createPostgresBackend(client, limits);
    const error = await lockError(backend.acquire({ key: newKey(), ttlMs: 5_000 }));
    expect(error.message).toBe("Operation timed out after 300 ms");
  });
});
