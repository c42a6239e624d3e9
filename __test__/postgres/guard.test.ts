/** Locks that are checked in users' own transactions. */

import { Client, Pool, type PoolClient } from "pg";
import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { type HeldLock, LockError, type SyncGuardBackend } from "syncguard";
import { createAutoLock } from "syncguard/common";
import {
  createPostgresBackend,
  type PostgresCapabilities,
  type PostgresTransaction,
  setupSchema,
} from "syncguard/postgres";
import { lockError as anyLockError } from "../support/errors";
import {
  type Pooler,
  type PostgresServer,
  startPgBouncer,
  startPostgres,
  USER,
} from "../support/postgres";
import { newKey } from "../support/suite";

let server: PostgresServer;
let pooler: Pooler;
let sql: postgres.Sql;
let backend: SyncGuardBackend<PostgresCapabilities>;
beforeAll(async () => {
  server = await startPostgres();
  pooler = await startPgBouncer(server);
  sql = connect();
  await setupSchema(server.socketUrl);
  await sql`CREATE TABLE sums (id text PRIMARY KEY, n int NOT NULL)`;
  backend = createPostgresBackend(server.socketUrl, { onLost: () => undefined });
});
afterAll(async () => {
  await backend.close();
  await sql.end();
  await pooler.stop();
  await server.stop();
});

function connect(options: object = {}): postgres.Sql {
  const { folder: host, port } = server;
  const all = { host, port, user: USER, database: "postgres", onnotice: () => undefined };
  return postgres({ ...all, ...options });
}

function pgSettings(): { host: string; port: number; user: string; database: string } {
  return { host: server.folder, port: server.port, user: USER, database: "postgres" };
}

/** The LockError of that code that a promise is rejected with. */
async function lockError(promise: Promise<unknown>, code: string): Promise<LockError> {
  const error = await anyLockError(promise);
  expect(error.code).toBe(code);
  return error;
}

/** A lock, and another holder that has taken it over since. */
async function overtaken(key: string): Promise<HeldLock<PostgresCapabilities>> {
  const stale = await backend.lock(key);
  await sql`UPDATE syncguard_locks SET expires_at_ms = 1 WHERE lock_id = ${stale.lockId}`;
  await backend.lock(key);
  return stale;
}

/** Begins a transaction, lets `work` write in it, and commits it. */
type Transact = (work: (tx: PostgresTransaction, write: Write) => Promise<void>) => Promise<void>;
type Write = (id: string) => Promise<unknown>;

const INSERT = "INSERT INTO sums VALUES ($1, 1)";

function onPg(client: Client | PoolClient): Transact {
  return async (work) => {
    await client.query("BEGIN");
    try {
      await work(client, (id) => client.query(INSERT, [id]));
      await client.query("COMMIT");
    } catch (error) {
      await client.query("ROLLBACK");
      throw error;
    }
  };
}

function onPostgresJs(of: postgres.Sql): Transact {
  return async (work) => {
    await of.begin(async (tx) => {
      await work(tx, (id) => tx.unsafe(INSERT, [id]));
    });
  };
}

const CLIENTS: Record<string, () => Promise<{ transact: Transact; end: () => Promise<unknown> }>> =
  {
    "postgres.js": async () => ({ transact: onPostgresJs(sql), end: async () => undefined }),
    "postgres.js behind PgBouncer": async () => {
      const behind = postgres(pooler.url.split("?")[0] as string, { prepare: false });
      return { transact: onPostgresJs(behind), end: () => behind.end() };
    },
    "a Client of pg": async () => {
      const client = new Client(pgSettings());
      await client.connect();
      return { transact: onPg(client), end: () => client.end() };
    },
    "a PoolClient of pg behind PgBouncer": async () => {
      const pool = new Pool({ connectionString: pooler.url.split("?")[0] as string });
      const client = await pool.connect();
      return {
        transact: onPg(client),
        end: async () => {
          client.release();
          await pool.end();
        },
      };
    },
  };

describe.each(Object.keys(CLIENTS))("in a transaction of %s", (name) => {
  let transact: Transact;
  let end: () => Promise<unknown>;
  beforeAll(async () => {
    ({ transact, end } = await (CLIENTS[name] as () => ReturnType<(typeof CLIENTS)[string]>)());
  });
  afterAll(() => end());

  test("the holder of a lock commits, and gives it back", async () => {
    const key = newKey();
    const held = await backend.lock(key);
    await transact(async (tx, write) => {
      await held.guard(tx);
      await write(key);
    });
    expect(await sql`SELECT n FROM sums WHERE id = ${key}`).toEqual([{ n: 1 }]);
    expect(await held.release()).toEqual({ ok: true });
  });

  test("a stale holder commits nothing, and hears of its loss", async () => {
    const key = newKey();
    const stale = await overtaken(key);
    const { signal } = stale;
    const committed = transact(async (tx, write) => {
      await write(key);
      await stale.guard(tx);
    });
    const error = await lockError(committed, "LockLost");
    expect(error.context).toMatchObject({ key, lockId: stale.lockId });
    expect((error.cause as { code: string }).code).toBe("22P02");
    expect(await sql`SELECT n FROM sums WHERE id = ${key}`).toEqual([]);
    expect(signal.reason).toBe(error);
    // Known by now, it takes no round trip.
    expect(() => stale.guardQuery()).toThrow(error);
  });

  test("a stale holder that ignores the error commits nothing either", async () => {
    const key = newKey();
    const stale = await overtaken(key);
    const { text, values } = stale.guardQuery();
    const committed = transact(async (tx, write) => {
      await write(key);
      const run =
        "unsafe" in tx
          ? (tx as unknown as postgres.Sql).unsafe(text, values)
          : (tx as unknown as Client).query(text, values);
      await run.then(
        () => expect.unreachable(),
        (error: unknown) => expect((error as Error).message).toContain("LockLost"),
      );
    });
    // postgres.js rejects; pg's COMMIT is a ROLLBACK.
    await committed.catch(() => undefined);
    expect(await sql`SELECT n FROM sums WHERE id = ${key}`).toEqual([]);
  });

  test("nobody takes the lock before the transaction ends, whatever its time is", async () => {
    const key = newKey();
    const held = await backend.lock(key);
    await transact(async (tx) => {
      await held.guard(tx);
      await sql`UPDATE syncguard_locks SET expires_at_ms = 1 WHERE lock_id = ${held.lockId}`;
      expect(await backend.acquire({ key, ttlMs: 1_000 })).toMatchObject({ ok: false });
      expect(await backend.extend({ lockId: held.lockId, ttlMs: 1_000 })).toEqual({ ok: false });
    });
    expect(await backend.acquire({ key, ttlMs: 1_000 })).toMatchObject({ ok: true });
  });

  test("one guard is for all of several locks, and names the one that is gone", async () => {
    const keys = [newKey(), newKey()];
    const held = await backend.lock([...keys, { key: newKey(), slots: 3, take: 2 }]);
    await transact((tx) => held.guard(tx));
    const gone = held.locks[2] as (typeof held.locks)[number];
    await sql`DELETE FROM syncguard_locks WHERE lock_id = ${gone.lockId}`;
    const error = await lockError(
      transact((tx) => held.guard(tx)),
      "LockLost",
    );
    expect(error.context).toMatchObject({ key: gone.key, lockId: gone.lockId });
  });

  test("a guard is for what is left of several locks", async () => {
    const held = await backend.lock([newKey(), newKey()]);
    await transact((tx) => held.guard(tx));
    await backend.release({ lockId: held.lockIds[0] as string });
    await transact((tx) => held.guard(tx));
    expect(await held.release()).toEqual({ ok: true });
  });

  test("heartbeats go on meanwhile", async () => {
    const key = newKey();
    const held = await backend.lock(key, { ttlMs: 5_000, autoExtend: { everyMs: 50 } });
    const before = held.expiresAtMs;
    await transact(async (tx) => {
      await held.guard(tx);
      await expect.poll(() => held.expiresAtMs, { timeout: 20_000 }).toBeGreaterThan(before);
    });
    expect(await held.release()).toEqual({ ok: true });
  });
});

test("the handle of a callback guards, and so does what is spread of a handle", async () => {
  const lock = createAutoLock(backend);
  const key = newKey();
  const guarded = lock(
    async ({ guard, guardQuery }) => {
      await sql.begin((tx) => guard(tx));
      return guardQuery().values.length;
    },
    { key },
  );
  expect(await guarded).toBe(1);
  const both = lock((handle) => sql.begin((tx) => handle.guard(tx)), { key: [key, newKey()] });
  await both;
  const { guard } = { ...(await backend.lock(key, { onReleaseError: () => undefined })) };
  await sql.begin((tx) => guard(tx));
});

test("a leader guards what it writes in its term, and not after it", async () => {
  const key = newKey();
  const stopping = new AbortController();
  const refused: unknown[] = [];
  const { signal } = stopping;
  await backend.lead(
    key,
    async ({ guard }) => {
      await sql.begin((tx) => guard(tx));
      await backend.forceRelease(key);
      await sql.begin((tx) => guard(tx)).catch((error: unknown) => refused.push(error));
      stopping.abort();
    },
    { signal },
  );
  expect(refused).toMatchObject([{ code: "LockLost" }]);
});

describe("guardFailed()", () => {
  /** What a client throws for a statement. */
  const thrown = async (text: string, values: string[] = []): Promise<unknown> =>
    await sql.unsafe(text, values).then(
      () => expect.unreachable(),
      (error: unknown) => error,
    );

  test("is true for a guard that has refused, however the error is wrapped, and tells the holder", async () => {
    const stale = await overtaken(newKey());
    const { text, values } = stale.guardQuery();
    const wrapped = new Error("a query failed", {
      cause: { meta: { driver: await thrown(text, values) } },
    });
    expect(stale.signal.aborted).toBe(false);
    expect(await stale.guardFailed(wrapped)).toBe(true);
    expect(stale.signal.reason).toMatchObject({ code: "LockLost" });
  });

  test("is true for a guard that knew of the loss and did not ask the server", async () => {
    const stale = await overtaken(newKey());
    const first = await lockError(
      sql.begin((tx) => stale.guard(tx)),
      "LockLost",
    );
    const next = await lockError(
      Promise.resolve().then(() => stale.guardQuery()),
      "LockLost",
    );
    for (const error of [first, next, new Error("a query failed", { cause: next })]) {
      expect(await stale.guardFailed(error)).toBe(true);
    }
  });

  test("is false for any other error, also of the same SQLSTATE, or that quotes the statement", async () => {
    const held = await backend.lock(newKey());
    const { text } = held.guardQuery();
    const circle: Record<string, unknown> = { code: "22P02" };
    circle.itself = circle;
    const others = [
      await thrown("SELECT 'x'::int"),
      Object.assign(new Error("the connection was lost"), { code: "ECONNRESET", sql: text }),
      circle,
      "22P02",
      undefined,
    ];
    for (const other of others) expect(await held.guardFailed(other)).toBe(false);
    expect(held.signal.aborted).toBe(false);
    await held.release();
  });
});

describe("with savepoints", () => {
  /** What has been written as `id`. */
  const written = async (id: string): Promise<number> =>
    (await sql`SELECT FROM sums WHERE id LIKE ${`${id}%`}`).count;

  function session(): postgres.Sql {
    const one = connect({ max: 1 });
    onTestFinished(() => one.end());
    return one;
  }

  test("a guard counts after those that postgres.js never releases, and in one", async () => {
    const one = session();
    const key = newKey();
    const held = await backend.lock(key);
    for (const time of ["1", "2"]) {
      await one.begin(async (tx) => {
        await tx.savepoint((sp) => sp`INSERT INTO sums VALUES (${key + time}, 1)`);
        await tx.savepoint((sp) => held.guard(sp));
        await held.guard(tx);
      });
    }
    expect(await written(key)).toBe(2);
    expect(held.signal.aborted).toBe(false);
  });

  test.each([true, false])(
    "a guard that fails in one of postgres.js stops the transaction around it; writes after it: %s",
    async (writes) => {
      const one = session();
      const key = newKey();
      const other = await backend.lock(newKey());
      const stale = await overtaken(key);
      const { signal } = stale;
      // The second time, the loss is known.
      for (const time of ["1", "2"]) {
        await one.begin((tx) => other.guard(tx));
        let refused: unknown;
        const work = one.begin(async (tx) => {
          await tx`INSERT INTO sums VALUES (${key + time}, 1)`;
          const nested = tx.savepoint(async (sp) => {
            await stale.guard(sp).catch((error: unknown) => (refused = error));
          });
          await nested.catch(() => undefined);
          if (writes) await tx`INSERT INTO sums VALUES (${`${key + time}more`}, 1)`;
        });
        await work.catch(() => undefined);
        expect(refused).toMatchObject({ code: "LockLost" });
        expect(await written(key)).toBe(0);
      }
      expect(signal.aborted).toBe(true);
    },
  );

  test("a guard that fails in one of pg stops the transaction around it", async () => {
    const client = new Client(pgSettings());
    await client.connect();
    onTestFinished(() => client.end());
    const key = newKey();
    const other = await backend.lock(newKey());
    const stale = await overtaken(key);
    for (const time of ["1", "2"]) {
      await client.query("BEGIN");
      await other.guard(client);
      await client.query(INSERT, [key + time]);
      await client.query("SAVEPOINT one");
      await lockError(stale.guard(client), "LockLost");
      await expect(client.query("ROLLBACK TO one")).rejects.toMatchObject({ code: "3B001" });
      await expect(client.query(INSERT, [`${key + time}more`])).rejects.toThrow("aborted");
      expect((await client.query("COMMIT")).command).toBe("ROLLBACK");
      expect(await written(key)).toBe(0);
    }
    // Outside of a transaction, nothing is left behind.
    await lockError(other.guard(client), "InvalidArgument");
    await client.query(INSERT, [key]);
    expect(await written(key)).toBe(1);
  });
});

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
