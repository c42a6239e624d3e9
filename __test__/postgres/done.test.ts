/** What is done once for a period, and stored as done in the transaction that does it. */

import { fork } from "node:child_process";
import { once as event } from "node:events";
import { join } from "node:path";
import { Client } from "pg";
import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import type { OnceHandle, SyncGuardBackend } from "syncguard";
import {
  createPostgresBackend,
  type PostgresCapabilities,
  type PostgresTransaction,
  setupSchema,
} from "syncguard/postgres";
import { lockError } from "../support/errors";
import {
  type Pooler,
  type PostgresServer,
  startPgBouncer,
  startPostgres,
  USER,
} from "../support/postgres";
import { newKey } from "../support/suite";

const WORKER = join(import.meta.dirname, "fixtures/done-and-killed.mjs");

let server: PostgresServer;
let pooler: Pooler;
let sql: postgres.Sql;
let backend: SyncGuardBackend<PostgresCapabilities>;
beforeAll(async () => {
  server = await startPostgres();
  pooler = await startPgBouncer(server);
  const { folder: host, port } = server;
  sql = postgres({ host, port, user: USER, database: "postgres", onnotice: () => undefined });
  await setupSchema(server.socketUrl);
  await sql`CREATE TABLE effects (key text)`;
  backend = createPostgresBackend(server.socketUrl, { onLost: () => undefined });
});
afterAll(async () => {
  await backend.close();
  await sql.end();
  await pooler.stop();
  await server.stop();
});

type Handle = OnceHandle<PostgresCapabilities>;

const effects = async (key: string): Promise<number> =>
  (await sql`SELECT FROM effects WHERE key = ${key}`).count;

/** The mark of a key, as it is stored. */
const mark = async (key: string): Promise<object | undefined> =>
  (
    await sql`SELECT done_due, done_at_ms, done_lock_id FROM syncguard_fence_counters WHERE key_debug = ${key} AND done_due IS NOT NULL`
  )[0];

/** Does it, and stores in the same transaction that it is done. */
async function work({ key, done }: Handle): Promise<void> {
  await sql.begin(async (tx) => {
    await tx`INSERT INTO effects VALUES (${key})`;
    await done(tx);
  });
}

/** Lets somebody else have the lock on a key. */
async function overtake(key: string): Promise<void> {
  await sql`UPDATE syncguard_locks SET expires_at_ms = 1 WHERE user_key = ${key}`;
  expect(await backend.acquire({ key, ttlMs: 30_000 })).toMatchObject({ ok: true });
}

describe("done(tx)", () => {
  test("stores it with the transaction, and the release that follows changes nothing", async () => {
    const key = newKey();
    let stored: object | undefined;
    const run = await backend.once(key, { due: 42 }, async (handle) => {
      await work(handle);
      stored = await mark(key);
      expect(stored).toMatchObject({ done_lock_id: handle.lockId });
      return "value";
    });
    expect(run).toEqual({ ran: true, value: "value" });
    expect(await mark(key)).toEqual(stored);
    expect(await backend.isLocked({ key })).toBe(false);
    const again = await backend.once(key, { due: 42 }, work);
    expect(again).toMatchObject({ ran: false, reason: "done", lastDue: "42" });
    expect(await effects(key)).toBe(1);
  });

  test("leaves the period open if the transaction is rolled back", async () => {
    const key = newKey();
    const failed = backend.once(key, { due: 1 }, async ({ done }) => {
      await sql.begin(async (tx) => {
        await tx`INSERT INTO effects VALUES (${key})`;
        await done(tx);
        throw new Error("changed my mind");
      });
    });
    await expect(failed).rejects.toThrow("changed my mind");
    expect(await mark(key)).toBeUndefined();
    expect(await backend.once(key, { due: 1 }, work)).toMatchObject({ ran: true });
    expect(await effects(key)).toBe(1);
  });

  test("leaves it open if the function returns although the transaction was rolled back", async () => {
    const key = newKey();
    const rollBack = async (tx: postgres.TransactionSql): Promise<void> => {
      await tx`INSERT INTO effects VALUES (${key})`;
      throw new Error("card declined");
    };
    const ways: ((handle: Handle) => Promise<unknown>)[] = [
      ({ done }) => sql.begin((tx) => done(tx).then(() => rollBack(tx))).catch(() => undefined),
      ({ doneQuery }) =>
        sql
          .begin(async (tx) => {
            const { text, values } = doneQuery();
            await tx.unsafe(text, values);
            await rollBack(tx);
          })
          .catch(() => undefined),
    ];
    for (const way of ways) {
      expect(await backend.once(key, { due: 1 }, way)).toMatchObject({ ran: true });
      expect(await mark(key)).toBeUndefined();
      expect(await backend.isLocked({ key })).toBe(false);
    }
    expect(await backend.once(key, { due: 1 }, work)).toMatchObject({ ran: true });
    expect(await effects(key)).toBe(1);
  });

  test("keeps it done if the function fails after the commit", async () => {
    const key = newKey();
    const failed = backend.once(key, { due: 1 }, async (handle) => {
      await work(handle);
      throw new Error("too late");
    });
    await expect(failed).rejects.toThrow("too late");
    expect(await backend.once(key, { due: 1 }, work)).toMatchObject({ reason: "done" });
    expect(await effects(key)).toBe(1);
  });

  test("counts after savepoints that are not released, and in one", async () => {
    const key = newKey();
    const { folder: host, port } = server;
    const session = postgres({ host, port, user: USER, database: "postgres", max: 1 });
    onTestFinished(() => session.end());
    for (const due of [1, 2]) {
      const run = await backend.once(key, { due }, async ({ done, doneQuery }) => {
        await session.begin(async (tx) => {
          await tx.savepoint((sp) => sp`INSERT INTO effects VALUES (${key})`);
          if (due === 1) await done(tx);
          else await tx.savepoint((sp) => done(sp));
          const { text, values } = doneQuery();
          await tx.unsafe(text, values);
        });
      });
      expect(run).toMatchObject({ ran: true });
    }
    expect(await effects(key)).toBe(2);
  });

  test("of a stale holder in a savepoint stops the transaction around it", async () => {
    const key = newKey();
    const stale = backend.once(key, { due: 1, onLost: () => undefined }, async ({ done }) => {
      await overtake(key);
      await sql.begin(async (tx) => {
        await tx`INSERT INTO effects VALUES (${key})`;
        await tx.savepoint((sp) => done(sp)).catch(() => undefined);
      });
    });
    await lockError(stale);
    expect([await effects(key), await mark(key)]).toEqual([0, undefined]);
  });

  test("refuses a stale holder, whose transaction is rolled back", async () => {
    const key = newKey();
    let aborted: unknown;
    const stale = backend.once(key, { due: 1 }, async (handle) => {
      const { signal } = handle;
      await overtake(key);
      await work(handle).finally(() => {
        aborted = signal.reason;
      });
    });
    const error = await lockError(stale);
    expect(error.code).toBe("LockLost");
    expect(aborted).toBe(error);
    expect([await effects(key), await mark(key)]).toEqual([0, undefined]);
    await backend.forceRelease(key);
    expect(await backend.once(key, { due: 1 }, work)).toMatchObject({ ran: true });
  });

  test("counts if the lock is lost after the commit", async () => {
    const key = newKey();
    for (const due of [1, 2]) {
      const run = await backend.once(key, { due, onLost: () => undefined }, async (handle) => {
        await work(handle);
        if (due === 1) await overtake(key);
        else await sql`UPDATE syncguard_locks SET expires_at_ms = 1 WHERE user_key = ${key}`;
        return (await handle.extend(1_000)).ok;
      });
      expect(run).toEqual({ ran: true, value: false });
      await backend.forceRelease(key);
    }
    expect(await effects(key)).toBe(2);
  });

  test("is not repeated after a process was killed between the commit and the release", async () => {
    const key = newKey();
    const task = { url: server.url.split("?")[0], key, due: "2026-11", ttlMs: 300 };
    const child = fork(WORKER, [JSON.stringify(task)]);
    const ended = event(child, "exit");
    onTestFinished(() => void child.kill("SIGKILL"));
    await Promise.race([event(child, "message"), ended]);
    child.kill("SIGKILL");
    expect(await ended).toEqual([null, "SIGKILL"]);
    expect(await effects(key)).toBe(1);
    // Its lock ends with its TTL, and whoever asks then finds the period done.
    const next = await expect
      .poll(() => backend.once(key, { due: task.due }, work), { timeout: 30_000 })
      .toMatchObject({ ran: false, reason: "done" })
      .then(() => effects(key));
    expect(next).toBe(1);
  });

  test("lets who asks for the period meanwhile wait until the transaction ends, and then find it done", async () => {
    const key = newKey();
    await backend.once(key, { due: 1, onLost: () => undefined }, async ({ done }) => {
      let asked: Promise<unknown> | undefined;
      await sql.begin(async (tx) => {
        await done(tx);
        await sql`UPDATE syncguard_locks SET expires_at_ms = 1 WHERE user_key = ${key}`;
        asked = backend.once(key, { due: 1 }, () => "twice");
        const waits = async (): Promise<number> =>
          (await sql`SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'`).count;
        await expect.poll(waits, { timeout: 30_000 }).toBeGreaterThan(0);
      });
      expect(await asked).toMatchObject({ ran: false, reason: "done" });
    });
  });

  test("works in a transaction of pg, also behind PgBouncer, and doneQuery() in any", async () => {
    const client = new Client({ connectionString: pooler.url.split("?")[0] as string });
    await client.connect();
    onTestFinished(() => client.end());
    const key = newKey();
    const ways: readonly ((handle: Handle) => Promise<unknown>)[] = [
      ({ done }) => done(client),
      ({ doneQuery }) => {
        const { text, values } = doneQuery();
        return client.query(text, values);
      },
    ];
    for (const [due, store] of ways.entries()) {
      const run = await backend.once(key, { due }, async (handle) => {
        await client.query("BEGIN");
        await client.query("INSERT INTO effects VALUES ($1)", [key]);
        await store(handle);
        await client.query("COMMIT");
        expect(await mark(key)).toMatchObject({ done_lock_id: handle.lockId });
      });
      expect(run).toMatchObject({ ran: true });
    }
    expect(await effects(key)).toBe(2);
  });

  test("keeps a later period that somebody has set by force", async () => {
    const key = newKey();
    const run = await backend.once(key, { due: "a" }, async (handle) => {
      await sql`UPDATE syncguard_fence_counters SET done_due = 'tb', done_at_ms = 1, done_lock_id = ${handle.lockId} WHERE key_debug = ${key}`;
      await work(handle);
    });
    expect(run).toMatchObject({ ran: true });
    expect(await mark(key)).toMatchObject({ done_due: "tb" });
  });

  test("needs few rights on the table of counters, and says which", async () => {
    await sql`CREATE ROLE clerk`;
    await sql`GRANT SELECT (key, lock_id, expires_at_ms), UPDATE (owner) ON syncguard_locks TO clerk`;
    const key = newKey();
    const store = (): Promise<unknown> =>
      backend.once(key, { due: 1 }, async ({ done }) => {
        await sql.begin(async (tx) => {
          await tx`SET LOCAL ROLE clerk`;
          await done(tx);
        });
      });
    const error = await lockError(store());
    expect(error.code).toBe("AuthFailed");
    expect(error.message).toContain("INSERT and UPDATE on the table of fence counters");
    await sql`GRANT SELECT, INSERT, UPDATE ON syncguard_fence_counters TO clerk`;
    expect(await store()).toMatchObject({ ran: true });
  });

  test("is for transactions alone, and only of once()", async () => {
    await backend.once(newKey(), { due: 1 }, async ({ done }) => {
      const error = await lockError(done(sql as unknown as PostgresTransaction));
      expect(error.code).toBe("InvalidArgument");
      expect(error.message).toContain("sql.begin() gives");
    });
    const held = await backend.lock(newKey());
    expect(held).not.toHaveProperty("done");
    expect(held).toHaveProperty("guard");
  });
});
