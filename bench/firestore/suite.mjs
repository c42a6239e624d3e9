// Acquire and release on a Firestore emulator: this package, and the TypeScript library's transactions on Google's client.

import { cpus } from "node:os";
import { load } from "../lib/load.mjs";
import { median, printTable, spread } from "../lib/table.mjs";
import { canonical, ours } from "./contenders.mjs";
import { startServer } from "./server.mjs";

const IN_FLIGHT = [1, 16, 64];
const RUNS = Number(process.env.BENCH_RUNS ?? 5);
const RUN_MS = Number(process.env.BENCH_RUN_MS ?? 2_000);

const NAMES = { ours: "syncguard", canonical: "transactions on @google-cloud/firestore" };

export async function run() {
  // Without it, Google's client looks for the metadata server of a machine in its cloud.
  process.env.METADATA_SERVER_DETECTION = "none";
  const server = await startServer();
  const closing = [];
  try {
    const nodes = { ours: await ours(server.host), canonical: canonical(server.host) };
    closing.push(...Object.values(nodes));
    console.log(
      `The emulator of this repository, which is not Firestore, on this machine: ${cpus().length} × ${cpus()[0]?.model}, Node.js ${process.version}`,
    );
    console.log(
      `medians of ${RUNS} interleaved runs of ${RUN_MS} ms (smallest–largest); a pair is acquire + release\n`,
    );
    print(await measure(nodes));
  } finally {
    await Promise.all(closing.map(({ close }) => close()));
    await server.stop();
  }
}

async function measure(nodes) {
  for (const { pair } of Object.values(nodes)) await load(pair, 64, 1_000);
  const results = IN_FLIGHT.map((inFlight) => ({ inFlight, runs: { ours: [], canonical: [] } }));
  for (let run = 0; run < RUNS; run += 1) {
    for (const { inFlight, runs } of results) {
      // Each goes first as often as the other.
      const order = run % 2 === 0 ? ["ours", "canonical"] : ["canonical", "ours"];
      for (const who of order) {
        const { pair } = nodes[who];
        await load(pair, inFlight, 200);
        runs[who].push(await load(pair, inFlight, RUN_MS));
      }
    }
  }
  return results;
}

function print(results) {
  const rows = [["in flight", "", "pairs/s", "p50, µs", "CPU, µs/pair", "main thread CPU, µs/pair", "main thread busy, µs/pair"]]; // prettier-ignore
  const ratios = [["in flight", "pairs/s", "p50", "CPU", "main thread CPU", "main thread busy"]];
  for (const { inFlight, runs } of results) {
    const of = (who, field) => runs[who].map((run) => run[field]);
    for (const [who, name] of Object.entries(NAMES)) {
      // prettier-ignore
      rows.push([
        String(inFlight),
        name,
        spread(of(who, "rate")),
        spread(of(who, "p50")),
        ...["cpu", "mainCpu", "mainBusy"].map((field) => spread(of(who, field), 1)),
      ]);
    }
    const ratio = (field) =>
      (median(of("ours", field)) / median(of("canonical", field))).toFixed(3);
    ratios.push([
      String(inFlight),
      ...["rate", "p50", "cpu", "mainCpu", "mainBusy"].map((field) => ratio(field)),
    ]);
  }
  printTable(rows);
  console.log(`\n${NAMES.ours} ÷ ${NAMES.canonical}`);
  printTable(ratios);
}
