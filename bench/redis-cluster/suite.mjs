// Acquire and release on a Redis Cluster of three primaries, against one server.

import { cpus } from "node:os";
import { createRedisBackend } from "syncguard/redis";
import { load } from "../lib/load.mjs";
import { pairOf } from "../lib/pair.mjs";
import { median, printTable, spread } from "../lib/table.mjs";
import { startServer } from "../redis/server.mjs";
import { startCluster } from "./cluster.mjs";

const IN_FLIGHT = [1, 16, 64, 256];
const PRIMARIES = 3;
const RUNS = Number(process.env.BENCH_RUNS ?? 7);
const RUN_MS = Number(process.env.BENCH_RUN_MS ?? 800);

export async function run() {
  const [server, cluster] = await Promise.all([startServer(), startCluster(PRIMARIES)]);
  const contenders = [
    ["one server", `redis://127.0.0.1:${server.port}`],
    [`${PRIMARIES} primaries`, cluster.url],
  ].map(([name, url]) => {
    const backend = createRedisBackend(url);
    return { name, backend, pair: pairOf(backend) };
  });
  try {
    console.log(
      `Redis on this machine, ${cpus().length} × ${cpus()[0]?.model}, Node.js ${process.version}`,
    );
    console.log(
      `medians of ${RUNS} interleaved runs of ${RUN_MS} ms (smallest–largest); a pair is acquire + release\n`,
    );
    await compare(contenders);
  } finally {
    await Promise.all(contenders.map(({ backend }) => backend.close()));
    await Promise.all([server.stop(), cluster.stop()]);
  }
}

async function compare(contenders) {
  for (const { pair } of contenders) await load(pair, 64, 1_000);
  const rows = [
    ["in flight", "", "pairs/s", "p50, µs", "CPU, µs/pair", "main thread busy, µs/pair"],
  ];
  const ratios = [["in flight", "pairs/s", "p50", "CPU", "main thread busy"]];
  const fields = ["rate", "p50", "cpu", "mainBusy"];
  for (const inFlight of IN_FLIGHT) {
    const results = contenders.map(() => []);
    for (let run = 0; run < RUNS; run += 1) {
      // Each goes first as often as the other.
      const order = [...contenders.keys()];
      if (run % 2 === 1) order.reverse();
      for (const who of order)
        results[who].push(await load(contenders[who].pair, inFlight, RUN_MS));
    }
    const of = (who, field) => results[who].map((result) => result[field]);
    for (const [who, { name }] of contenders.entries()) {
      rows.push([String(inFlight), name, ...fields.map((field) => spread(of(who, field)))]);
    }
    const ratio = (field) => (median(of(1, field)) / median(of(0, field))).toFixed(2);
    ratios.push([String(inFlight), ...fields.map(ratio)]);
  }
  printTable(rows);
  console.log(`\n${contenders[1].name} ÷ ${contenders[0].name}`);
  printTable(ratios);
}
