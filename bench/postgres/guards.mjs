// What a guard costs beside a `select 1`, in the same transactions of postgres.js, which write to a row of their own: a client on
// the server's own machine, where a round trip takes the least.

import postgres from "postgres";
import { createPostgresBackend, setupSchema } from "syncguard/postgres";
import { ratio } from "../lib/compare.mjs";
import { printTable, spread } from "../lib/table.mjs";
import { startServer, USER } from "./server.mjs";

/** Locks in the table, as others have them. */
const LOCKS = 1_000;
/** Statements of one kind in a row. */
const SAMPLES = 250;

const PLAIN = "select 1";
const ROW = "SELECT key FROM syncguard_locks WHERE lock_id = $1";

export async function run({ runs = 21 }) {
  const server = await startServer();
  const url = `postgres://${USER}@127.0.0.1:${server.port}/postgres`;
  const sql = postgres(url, { max: 1, onnotice: () => undefined });
  const backend = createPostgresBackend(`${url}?sslmode=disable`);
  try {
    await setupSchema(`${url}?sslmode=disable`);
    const others = Array.from({ length: LOCKS }, (_, number) => `other:${number}`);
    await Promise.all(others.map((key) => backend.acquire({ key, ttlMs: 3_600_000 })));
    const held = await backend.lock("guarded", { ttlMs: 3_600_000 });
    await sql`CREATE TABLE sums (n int NOT NULL)`;
    await sql`INSERT INTO sums VALUES (0)`;
    await sql`ANALYZE`;
    const by = (text, values) => (tx) => tx.unsafe(text, values, { prepare: true });
    const { text, values } = held.guardQuery();
    const statements = {
      [PLAIN]: by(PLAIN, []),
      "the lock's row by its lock id, unlocked": by(ROW, [held.lockId]),
      "the same FOR KEY SHARE, by hand": by(`${ROW} FOR KEY SHARE`, [held.lockId]),
      "guardQuery()": by(text, values),
      "guard()": (tx) => held.guard(tx),
    };
    const micros = Object.fromEntries(Object.keys(statements).map((name) => [name, []]));
    for (let run = -1; run < runs; run += 1) {
      // Each goes first as often as the others.
      const order = Object.keys(statements);
      order.push(...order.splice(0, (run + order.length) % order.length));
      for (const name of order) {
        const taken = await measured(sql, statements[name]);
        if (run >= 0) micros[name].push(taken);
      }
    }
    console.log(
      `${runs} runs in turns of ${SAMPLES} transactions that write: medians of the runs`,
    );
    console.log("(smallest–largest); only the statement is measured\n");
    printTable([
      ["", "µs", `÷ ${PLAIN}`],
      ...Object.entries(micros).map(([name, values]) => [
        ...[name, spread(values), ratioIn(values, micros[PLAIN])],
      ]),
    ]); // prettier-ignore
  } finally {
    await backend.close();
    await sql.end();
    await server.stop();
  }
}

/**
 * Microseconds that the statement takes in a transaction of its own, on average. It comes after a write, as any guard is in a
 * transaction that writes: without one, a `select 1` would be in a transaction that waits for no disk and has no number yet, and a
 * guard would pay for both.
 */
async function measured(sql, statement) {
  let all = 0;
  for (let sample = 0; sample < SAMPLES; sample += 1) {
    await sql.begin(async (tx) => {
      await tx`UPDATE sums SET n = n + 1`;
      const started = performance.now();
      await statement(tx);
      all += performance.now() - started;
    });
  }
  return (all / SAMPLES) * 1_000;
}

/** The ratio of the medians, and of the runs the smallest and the largest. */
function ratioIn(values, others) {
  const each = values.map((value, run) => value / others[run]);
  const [low, high] = [Math.min(...each), Math.max(...each)];
  return `${ratio(values, others)} (${low.toFixed(2)}–${high.toFixed(2)})`;
}
