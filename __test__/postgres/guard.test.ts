/** Locks that are checked in users' own transactions. */

import { Client, Pool, type PoolClient } from "pg";
import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { createAutoLock } from "syncguard/common";
import { type PostgresTransaction } from "syncguard/postgres";
import { rejection } from "../support/errors";
import { type Pooler, startPgBouncer } from "../support/postgres";
import { newKey } from "../support/suite";
import {
  backend,
  connect,
  INSERT,
  lockError,
  overtaken,
  pgSettings,
  server,
  sql,
} from "./guard-stage";

let pooler: Pooler;
beforeAll(async () => {
  pooler = await startPgBouncer(server);
});
afterAll(() => pooler.stop());

/** Begins a transaction, lets `work` write in it, and commits it. */
type Transact = (work: (tx: PostgresTransaction, write: Write) => Promise<void>) => Promise<void>;
type Write = (id: string) => Promise<unknown>;

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

  test("readers guard beside each other, until their key is freed by force", async () => {
    const key = newKey();
    const [held, beside] = [
      await backend.lock(key, { mode: "shared" }),
      await backend.lock([{ key, mode: "shared" }, newKey(), { key: newKey(), slots: 3 }]),
    ];
    await transact((tx) => held.guard(tx));
    await transact((tx) => beside.guard(tx));
    expect(await backend.forceRelease(key)).toEqual({ ok: true });
    const committed = transact(async (tx, write) => {
      await write(key);
      await held.guard(tx);
    });
    await lockError(committed, "LockLost");
    expect(await sql`SELECT n FROM sums WHERE id = ${key}`).toEqual([]);
    // Those who share it next are others.
    await using next = await backend.lock(key, { mode: "shared" });
    await lockError(
      transact((tx) => beside.guard(tx)),
      "LockLost",
    );
    await transact((tx) => next.guard(tx));
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

  test("the statement of a guard that fails in one leaves the transaction, and says what to do", async () => {
    const one = session();
    const key = newKey();
    const { text, values } = (await overtaken(key)).guardQuery();
    const work = one.begin(async (tx) => {
      await tx`INSERT INTO sums VALUES (${key}, 1)`;
      return await rejection(tx.savepoint((sp) => sp.unsafe(text, values)));
    });
    expect(((await work) as Error).message).toContain("LockLost: roll the whole transaction back");
    expect(await written(key)).toBe(1);
  });

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
