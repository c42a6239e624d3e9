// Acquire and release on PostgreSQL: this package, the TypeScript library's transactions, and pgbench with our SQL.

import { cpus } from "node:os";
import { load } from "../lib/load.mjs";
import { median, printTable, spread } from "../lib/table.mjs";
import { canonical, CONNECTIONS, ours, pgbenchScript, setUp } from "./contenders.mjs";
import { pgbench, startServer } from "./server.mjs";

const IN_FLIGHT = [1, 16, 64];
const RUNS = Number(process.env.BENCH_RUNS ?? 5);
const RUN_MS = Number(process.env.BENCH_RUN_MS ?? 2_000);

const NAMES = {
  durable: "syncguard, durable releases",
  relaxed: "syncguard",
  canonical: "transactions on postgres.js",
  pgbenchDurable: "pgbench, durable releases",
  pgbenchRelaxed: "pgbench",
};

export async function run() {
  const server = await startServer();
  const closing = [];
  try {
    await setUp(server.port);
    const nodes = {
      durable: await ours(server.port, "durable"),
      relaxed: await ours(server.port, "relaxed"),
      canonical: canonical(server.port),
    };
    closing.push(...Object.values(nodes));
    const files = {
      pgbenchDurable: server.file("durable.sql", pgbenchScript(true)),
      pgbenchRelaxed: server.file("relaxed.sql", pgbenchScript(false)),
    };
    console.log(
      `PostgreSQL on this machine, fsync on, ${cpus().length} × ${cpus()[0]?.model}, Node.js ${process.version}`,
    );
    console.log(
      `medians of ${RUNS} interleaved runs of ${RUN_MS} ms (smallest–largest); at most ${CONNECTIONS} connections each; a pair is acquire + release\n`,
    );
    print(await measure(server, nodes, files));
  } finally {
    await Promise.all(closing.map(({ close }) => close()));
    await server.stop();
  }
}

async function measure(server, nodes, files) {
  for (const { pair } of Object.values(nodes)) await load(pair, 64, 1_000);
  const results = IN_FLIGHT.map((inFlight) => ({
    inFlight,
    runs: Object.fromEntries(Object.keys(NAMES).map((name) => [name, []])),
  }));
  for (let run = 0; run < RUNS; run += 1) {
    for (const { inFlight, runs } of results) {
      // Each goes first as often as the others.
      const order = Object.keys(NAMES);
      order.push(...order.splice(0, run % order.length));
      for (const who of order) {
        if (who in files) {
          const connections = Math.min(inFlight, CONNECTIONS);
          const rate = await pgbench(server.port, files[who], connections, RUN_MS);
          runs[who].push({ rate });
        } else {
          const { pair } = nodes[who];
          await load(pair, inFlight, 200);
          runs[who].push(await load(pair, inFlight, RUN_MS));
        }
      }
    }
  }
  return results;
}

function print(results) {
  const rows = [["in flight", "", "pairs/s", "p50, µs", "CPU, µs/pair", "main thread CPU, µs/pair", "main thread busy, µs/pair"]]; // prettier-ignore
  const ratios = [["in flight", "", "pairs/s ÷ postgres.js", "main thread CPU ÷ postgres.js", "pairs/s ÷ pgbench"]]; // prettier-ignore
  for (const { inFlight, runs } of results) {
    const of = (who, field) => runs[who].map((run) => run[field]);
    for (const [who, name] of Object.entries(NAMES)) {
      const isPgbench = who.startsWith("pgbench");
      rows.push([
        String(inFlight),
        name,
        spread(of(who, "rate")),
        isPgbench ? "" : spread(of(who, "p50")),
        ...["cpu", "mainCpu", "mainBusy"].map((field) => isPgbench ? "" : spread(of(who, field), 1)),
      ]); // prettier-ignore
    }
    for (const [who, limit] of [
      ["durable", "pgbenchDurable"],
      ["relaxed", "pgbenchRelaxed"],
    ]) {
      const ratio = (field, other) =>
        (median(of(who, field)) / median(of(other, field))).toFixed(2);
      ratios.push([
        String(inFlight),
        NAMES[who],
        ratio("rate", "canonical"),
        ratio("mainCpu", "canonical"),
        ratio("rate", limit),
      ]);
    }
  }
  printTable(rows);
  console.log();
  printTable(ratios);
}
