/** Guards in the nested transactions of ORMs, which are savepoints: docs/guards.md, "Savepoints". */

import { afterAll, afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { OnceHandle } from "syncguard";
import type { GuardQuery, PostgresCapabilities, PostgresTransaction } from "syncguard/postgres";
import { backend, lockError, server, sql } from "../postgres/guard-stage";
import { rejection } from "../support/errors";
import { newKey, take } from "../support/suite";
import { temporaryFolder } from "../support/temp";
// @ts-expect-error programs of users, in plain JavaScript
import { orms } from "./orms.mjs";

type Work = (tx: unknown) => Promise<unknown>;
type Orm = {
  readonly transaction: (work: Work) => Promise<unknown>;
  readonly nested: (tx: unknown, work: Work) => Promise<unknown>;
  readonly run: (tx: unknown, query: GuardQuery) => Promise<unknown>;
  readonly client?: (tx: unknown) => PostgresTransaction | Promise<PostgresTransaction>;
  readonly end: () => Promise<unknown>;
};
type Open = (place: { url: string; folder: string }) => Orm | Promise<Orm>;

type Held = OnceHandle<PostgresCapabilities>;
type Way = {
  /** Whether it is given a client, and stops the whole transaction. */
  readonly stops: boolean;
  readonly check: (held: Held, orm: Orm, tx: unknown) => Promise<unknown>;
};
const WAYS: Readonly<Record<string, Way>> = {
  "guard(tx)": { stops: true, check: async (held, orm, tx) => held.guard(await orm.client!(tx)) },
  "done(tx)": { stops: true, check: async (held, orm, tx) => held.done(await orm.client!(tx)) },
  "guardQuery()": { stops: false, check: async (held, { run }, tx) => run(tx, held.guardQuery()) },
  "doneQuery()": { stops: false, check: async (held, { run }, tx) => run(tx, held.doneQuery()) },
};

/** If a savepoint cannot be released, these do not go back to it, and the transaction around it is as failed as it is. */
const STAYS_FAILED = ["Knex", "Prisma", "Sequelize"];
/** They hide the client of pg. */
const HIDES_CLIENT = ["Kysely", "Prisma"];

const folder = temporaryFolder();
afterAll(() => {
  folder.remove();
});
beforeEach(() => {
  // Sequelize tells of a savepoint that it cannot go back to.
  vi.spyOn(console, "warn").mockReturnValue(undefined);
});

const cases = Object.entries(orms as Record<string, Open>).flatMap(([name, open]) =>
  Object.entries(WAYS)
    .filter(([, { stops }]) => !(stops && HIDES_CLIENT.includes(name)))
    .map(([way, { stops, check }]) => ({ name, open, way, stops, check })),
);
describe.each(cases)("$way in transactions of $name", ({ name, way, open, stops, check }) => {
  let orm: Orm;
  const sessions = new Set<number>();
  beforeEach(async () => {
    const [url] = server.url.split("?") as [string];
    orm = await open({ url, folder: folder.path });
    sessions.clear();
  });
  afterEach(async () => {
    await orm.end();
    expect(sessions.size).toBe(1);
  });

  const write = async (tx: unknown, key: string, place: string): Promise<void> => {
    const text = "INSERT INTO sums VALUES ($1, pg_backend_pid())";
    await orm.run(tx, { text, values: [`${key} ${place}`] });
  };
  /** Where in a transaction that was committed something was written. */
  async function written(key: string): Promise<unknown[]> {
    const rows = await sql`SELECT id, n FROM sums WHERE id LIKE ${`${key} %`} ORDER BY id`;
    for (const { n } of rows) sessions.add(n as number);
    return rows.map(({ id }) => (id as string).split(" ")[1]);
  }
  const isDone = async (key: string): Promise<boolean> =>
    (
      await sql`SELECT FROM syncguard_fence_counters WHERE key_debug = ${key} AND done_due IS NOT NULL`
    ).count > 0;

  /** Guards after savepoints and in one, while the lock is held. */
  async function whileHeld(): Promise<unknown[]> {
    const key = newKey();
    await backend.once(key, { due: 1 }, async (held) => {
      await orm.transaction(async (tx) => {
        await orm.nested(tx, (sp) => write(sp, key, "nested"));
        const undone = orm.nested(tx, async (sp) => {
          await write(sp, key, "undone");
          throw new Error("changed my mind");
        });
        await undone.catch(() => undefined);
        await orm.nested(tx, (sp) => check(held, orm, sp));
        await write(tx, key, "outside");
        await check(held, orm, tx);
      });
      expect(await isDone(key)).toBe(way.startsWith("done"));
    });
    return await written(key);
  }

  /** Guards in a savepoint once the lock is lost, and goes on. */
  async function onceLost(isCaught: "inside" | "outside"): Promise<unknown[]> {
    const key = newKey();
    let isRefused = false;
    const run = backend.once(key, { due: 1 }, async (held) => {
      await backend.forceRelease(key);
      await take(backend, key);
      let refused: unknown;
      const ended = orm.transaction(async (tx) => {
        await write(tx, key, "before");
        const nested = orm.nested(tx, async (sp) => {
          await write(sp, key, "nested");
          refused = await rejection(check(held, orm, sp));
          if (isCaught === "outside") throw refused;
        });
        await nested.catch(() => undefined);
        await write(tx, key, "outside").catch(() => undefined);
      });
      // Some reject if the server has answered a COMMIT with ROLLBACK, others do not.
      await ended.catch(() => undefined);
      isRefused = await held.guardFailed(refused);
    });
    await lockError(run, "LockLost");
    expect([isRefused, await isDone(key)]).toEqual([true, false]);
    // TypeORM, which could not go back to the savepoint, gives its session back as it is. The next that begins there ends that.
    if (name === "TypeORM" && stops) {
      const next = await rejection(orm.transaction(async () => undefined));
      expect(next).toMatchObject({ driverError: { code: "25P02" }, query: "START TRANSACTION" });
    }
    return await written(key);
  }

  const committed = ["nested", "outside"];

  test("counts after savepoints and in one, whatever was done in the session", async () => {
    for (const isCaught of [undefined, "outside", "inside"] as const) {
      if (isCaught !== undefined) await onceLost(isCaught);
      expect(await whileHeld()).toEqual(committed);
      expect(await whileHeld()).toEqual(committed);
    }
  });

  test.each(["outside", "inside"] as const)(
    `stops ${stops ? "the whole transaction" : "the savepoint"} if the error is caught %s of it`,
    async (isCaught) => {
      const isAlone = !stops && !(isCaught === "inside" && STAYS_FAILED.includes(name));
      const rest = isAlone ? ["before", "outside"] : [];
      for (let time = 0; time < 3; time += 1) {
        expect(await onceLost(isCaught)).toEqual(rest);
        expect(await onceLost(isCaught)).toEqual(rest);
        expect(await whileHeld()).toEqual(committed);
      }
    },
  );
});
