// What a guard costs beside a `select 1`, in the same transactions of postgres.js, which write to a row of their own: a client on
// the server's own machine, where a round trip takes the least.

import postgres from "postgres";
import { createPostgresBackend, setupSchema } from "syncguard/postgres";
import { ratio } from "../lib/compare.mjs";
import { median, printTable, spread } from "../lib/table.mjs";
import { startServer, USER } from "./server.mjs";

/** Locks in the table, as others have them. */
const LOCKS = 1_000;
/** Statements of one kind in a run. */
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
    const names = Object.keys(statements);
    const micros = Object.fromEntries(names.map((name) => [name, []]));
    for (let run = -1; run < runs; run += 1) {
      const samples = Object.fromEntries(names.map((name) => [name, []]));
      for (let sample = 0; sample < SAMPLES; sample += 1) {
        // One of each, because the machine gets faster and slower; in another order each time, because what ran before counts, too.
        for (const name of shuffled(names))
          samples[name].push(await measured(sql, statements[name]));
      }
      if (run >= 0) for (const name of names) micros[name].push(median(samples[name]));
    }
    console.log(
      `${runs} runs of ${SAMPLES} transactions of each that write: medians of the runs' medians`,
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
 * Microseconds that the statement takes in a transaction of its own. It comes after a write, as any guard is in a transaction that
 * writes: without one, a `select 1` would be in a transaction that waits for no disk and has no number yet, and a guard would pay
 * for both.
 */
async function measured(sql, statement) {
  return await sql.begin(async (tx) => {
    await tx`UPDATE sums SET n = n + 1`;
    const started = performance.now();
    await statement(tx);
    return (performance.now() - started) * 1_000;
  });
}

function shuffled(list) {
  return list
    .map((item) => ({ item, place: Math.random() }))
    .sort((one, other) => one.place - other.place)
    .map(({ item }) => item);
}

/** The ratio of the medians, and of the runs the smallest and the largest. */
function ratioIn(values, others) {
  const each = values.map((value, run) => value / others[run]);
  const [low, high] = [Math.min(...each), Math.max(...each)];
  return `${ratio(values, others)} (${low.toFixed(2)}–${high.toFixed(2)})`;
}
