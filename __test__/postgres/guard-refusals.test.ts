/** What cannot be guarded in users' own transactions. */

import { Client, Pool } from "pg";
import { describe, expect, onTestFinished, test } from "vitest";
import { type HeldLock, LockError } from "syncguard";
import {
  createPostgresBackend,
  type PostgresCapabilities,
  type PostgresTransaction,
  setupSchema,
} from "syncguard/postgres";
import { newKey } from "../support/suite";
import { backend, connect, lockError, pgSettings, server, sql } from "./guard-stage";

describe("what cannot be guarded", () => {
  test.each([
    ["the instance of postgres.js", (): unknown => sql, "sql.begin() gives"],
    ["a reserved connection", () => sql.reserve(), "sql.begin() gives"],
    ["a pool", () => new Pool(pgSettings()), "not the pool"],
    ["no client", () => ({}), "tx must be a transaction of postgres.js"],
    ["something with a method query", () => ({ query: async () => ({}) }), "guardQuery()"],
    ["nothing", () => undefined, "tx must be a transaction of postgres.js"],
    ["a text", () => "BEGIN", "tx must be a transaction of postgres.js"],
  ])("is %s: InvalidArgument", async (_, make, message) => {
    const tx = await make();
    onTestFinished(() => (tx as { release?: () => void } | undefined)?.release?.());
    const held = await backend.lock(newKey());
    const error = await lockError(held.guard(tx as PostgresTransaction), "InvalidArgument");
    expect(error.message).toContain(message);
    expect(held.signal.aborted).toBe(false);
  });

  test("is a client without a transaction", async () => {
    const client = new Client(pgSettings());
    await client.connect();
    onTestFinished(() => client.end());
    const held = await backend.lock(newKey());
    const error = await lockError(held.guard(client), "InvalidArgument");
    expect(error.message).toContain("BEGIN has to come first");
    await client.query("BEGIN");
    await held.guard(client);
    await client.query("COMMIT");
    await lockError(held.guard(client), "InvalidArgument");
  });

  test("is a transaction of another database: with no table of locks, or without the lock", async () => {
    await sql`CREATE DATABASE other`;
    const other = connect({ database: "other" });
    onTestFinished(() => other.end());
    const held = await backend.lock(newKey());
    const { signal } = held;
    const guard = (): Promise<unknown> => other.begin((tx) => held.guard(tx));
    expect((await lockError(guard(), "InvalidArgument")).message).toContain("another database");
    await setupSchema(`${server.socketUrl.slice(0, -"postgres".length)}other`);
    expect((await lockError(guard(), "InvalidArgument")).message).toContain("another database");
    expect(signal.aborted).toBe(false);
  });

  test.each(["REPEATABLE READ", "SERIALIZABLE"])(
    "is a transaction with an older snapshot, in %s: it is to be run again",
    async (level) => {
      let held: HeldLock<PostgresCapabilities> | undefined;
      const begin = (first: () => Promise<unknown>): Promise<unknown> =>
        sql.begin(`ISOLATION LEVEL ${level}`, async (tx) => {
          await tx`SELECT 1`;
          await first();
          await held?.guard(tx);
        });
      // Before the grant.
      const guarded = begin(async () => (held = await backend.lock(newKey())));
      expect((await lockError(guarded, "ServiceUnavailable")).message).toContain("snapshot");
      // Before the last extension, since when the time that it shows is over.
      const id = held?.lockId as string;
      await sql`UPDATE syncguard_locks SET expires_at_ms = 1 WHERE lock_id = ${id}`;
      const extend = (): Promise<unknown> =>
        sql`UPDATE syncguard_locks SET expires_at_ms = 9999999999999 WHERE lock_id = ${id}`;
      const error = await lockError(begin(extend), "ServiceUnavailable");
      expect(error.message).toContain("run the transaction again");
      expect((error.cause as Error).message).toContain("its snapshot is older");
      expect(held?.signal.aborted).toBe(false);
      await begin(async () => undefined);
      // One that is lost is lost in any level.
      await backend.forceRelease(held?.key as string);
      await lockError(
        begin(async () => undefined),
        "LockLost",
      );
    },
  );

  test("are rows that row level security hides from the role of the transaction", async () => {
    const tables = { tableName: "secure_locks", fenceTableName: "secure_fences" };
    await setupSchema(server.socketUrl, tables);
    await sql`CREATE ROLE tenant`;
    await sql`GRANT SELECT, UPDATE ON secure_locks TO tenant`;
    await sql`ALTER TABLE secure_locks ENABLE ROW LEVEL SECURITY`;
    const secure = createPostgresBackend(server.socketUrl, tables);
    onTestFinished(() => secure.close());
    const held = await secure.lock(newKey());
    const guard = (): Promise<unknown> =>
      sql.begin(async (tx) => {
        await tx`SET LOCAL ROLE tenant`;
        await held.guard(tx);
      });
    expect((await lockError(guard(), "AuthFailed")).message).toContain("row level security");
    expect(held.signal.aborted).toBe(false);
    await sql`CREATE POLICY syncguard ON secure_locks TO tenant USING (true) WITH CHECK (true)`;
    await guard();
    await held.release();
    await lockError(guard(), "LockLost");
  });

  test("is a lock without the unique index, or under a role without the rights", async () => {
    const tables = { tableName: "bare_locks", fenceTableName: "bare_fences" };
    await setupSchema(server.socketUrl, tables);
    await sql`DROP INDEX idx_bare_locks_lock_id`;
    await sql`CREATE ROLE poor`;
    const bare = createPostgresBackend(server.socketUrl, tables);
    onTestFinished(() => bare.close());
    const held = await bare.lock(newKey());
    const guarded = sql.begin((tx) => held.guard(tx));
    const error = await lockError(guarded, "InvalidArgument");
    expect(error.message).toContain("unique index on lock_id: call setupSchema");
    const poor = sql.begin(async (tx) => {
      await tx`SET LOCAL ROLE poor`;
      await held.guard(tx);
    });
    expect((await lockError(poor, "AuthFailed")).message).toContain("needs SELECT");
    expect(held.signal.aborted).toBe(false);
  });

  test("is a lock whose index was dropped, or made anew in another form, after it was guarded in the session", async () => {
    const tables = { tableName: "kept_locks", fenceTableName: "kept_fences" };
    await setupSchema(server.socketUrl, tables);
    const kept = createPostgresBackend(server.socketUrl, tables);
    onTestFinished(() => kept.close());
    const session = connect({ max: 1 });
    onTestFinished(() => session.end());
    const held = await kept.lock(newKey());
    const guard = (): Promise<unknown> => session.begin((tx) => held.guard(tx));
    const make = (how: string): Promise<unknown> =>
      sql.unsafe(`CREATE ${how} INDEX idx_kept_locks_lock_id ON kept_locks (lock_id)`);
    await guard();
    await guard();
    await sql`DROP INDEX idx_kept_locks_lock_id`;
    await lockError(guard(), "InvalidArgument");
    await make("");
    await lockError(guard(), "InvalidArgument");
    await sql`DROP INDEX idx_kept_locks_lock_id`;
    await make("UNIQUE");
    await guard();
    await sql`REINDEX INDEX CONCURRENTLY idx_kept_locks_lock_id`;
    await guard();
  });

  test("errors that are none of the guard's are the client's own", async () => {
    const held = await backend.lock(newKey());
    let error: unknown;
    const failed = sql.begin(async (tx) => {
      await tx`SELECT 1 / 0`.catch(() => undefined);
      error = await held.guard(tx).catch((reason: unknown) => reason);
    });
    await expect(failed).rejects.toThrow("division by zero");
    expect(error).not.toBeInstanceOf(LockError);
    expect((error as { code: string }).code).toBe("25P02");
  });
});
