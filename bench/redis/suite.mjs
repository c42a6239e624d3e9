// Acquire and release on Redis: this package, the same scripts by hand on ioredis, and the server's own limit.

import { setTimeout as sleep } from "node:timers/promises";
import { cpus } from "node:os";
import { load } from "../lib/load.mjs";
import { median, printTable, spread } from "../lib/table.mjs";
import { handWritten, ours } from "./contenders.mjs";
import { pairLimit, scriptCosts } from "./limit.mjs";
import { startServer } from "./server.mjs";

const IN_FLIGHT = [1, 4, 16, 64, 256];
const RUNS = Number(process.env.BENCH_RUNS ?? 7);
const RUN_MS = Number(process.env.BENCH_RUN_MS ?? 800);

export async function run() {
  const server = await startServer();
  const [mine, hand] = [await ours(server.port), handWritten(server.port)];
  try {
    console.log(
      `Redis on this machine, ${cpus().length} × ${cpus()[0]?.model}, Node.js ${process.version}`,
    );
    console.log(
      `medians of ${RUNS} interleaved runs of ${RUN_MS} ms (smallest–largest); a pair is acquire + release\n`,
    );
    await comparePairs(server, mine, hand);
    await compareScripts(server);
    await watchIdle();
  } finally {
    await Promise.all([mine.close(), hand.close()]);
    await server.stop();
  }
}

async function comparePairs(server, mine, hand) {
  const limits = [];
  const results = IN_FLIGHT.map((inFlight) => ({ inFlight, mine: [], hand: [] }));
  for (const { pair } of [mine, hand]) await load(pair, 16, 1_000);
  for (let run = 0; run < RUNS; run += 1) {
    for (const result of results) {
      // Each goes first as often as the other.
      const order = run % 2 === 0 ? ["mine", "hand"] : ["hand", "mine"];
      for (const who of order) {
        const { pair } = who === "mine" ? mine : hand;
        await load(pair, result.inFlight, 100);
        result[who].push(await load(pair, result.inFlight, RUN_MS));
      }
    }
    limits.push(await pairLimit(server));
  }

  const rows = [["in flight", "", "pairs/s", "p50, µs", "CPU, µs/pair", "main thread CPU, µs/pair", "main thread busy, µs/pair"]]; // prettier-ignore
  const ratios = [["in flight", "pairs/s", "p50", "CPU", "main thread CPU", "main thread busy", "of the server's limit"]]; // prettier-ignore
  for (const { inFlight, mine: own, hand: theirs } of results) {
    const of = (runs, field) => runs.map((run) => run[field]);
    for (const [name, runs] of [
      ["syncguard", own],
      ["ioredis by hand", theirs],
    ]) {
      // prettier-ignore
      rows.push([
        String(inFlight),
        name,
        spread(of(runs, "rate")),
        spread(of(runs, "p50")),
        ...["cpu", "mainCpu", "mainBusy"].map((field) => spread(of(runs, field), 1)),
      ]);
    }
    const ratio = (field) => (median(of(own, field)) / median(of(theirs, field))).toFixed(2);
    ratios.push([
      String(inFlight),
      ...["rate", "p50", "cpu", "mainCpu", "mainBusy"].map(ratio),
      (median(of(own, "rate")) / median(limits)).toFixed(2),
    ]);
  }
  rows.push(["16 × 16", "redis-benchmark", spread(limits), "", "", "", ""]);
  printTable(rows);
  console.log("\nsyncguard ÷ ioredis by hand");
  printTable(ratios);
}

async function compareScripts(server) {
  const costs = await scriptCosts(server, Math.min(RUNS, 5));
  console.log("\nserver time of a script, µs per call (usec_per_call)");
  printTable([
    ["script", "core", "with cjson", "ratio"],
    ...costs.map(({ name, core, cjson }) => [
      name,
      spread(core, 2),
      spread(cjson, 2),
      (median(core) / median(cjson)).toFixed(2),
    ]),
  ]);
}

/** An idle process burns no CPU, whatever its threads did before. */
async function watchIdle() {
  const before = process.cpuUsage();
  await sleep(2_000);
  const { user, system } = process.cpuUsage(before);
  console.log(
    `\nidle for 2 s with connections open: ${((user + system) / 1_000).toFixed(1)} ms of CPU`,
  );
}
