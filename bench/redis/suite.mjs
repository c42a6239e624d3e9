// Acquire and release on Redis: this package, the same scripts by hand on ioredis, and the server's own limit.

import { comparePairs, contender, ratio } from "../lib/compare.mjs";
import { builds } from "../lib/built.mjs";
import { endMembers } from "../lib/members.mjs";
import { printTable, spread } from "../lib/table.mjs";
import { pairLimit, scriptCosts } from "./limit.mjs";
import { startServer, startTlsServer } from "./server.mjs";

export const IN_FLIGHT = [1, 2, 4, 8, 16, 64, 256];

const CONTENDERS = new URL("contenders.mjs", import.meta.url);
const IDLE_MS = 2_000;

export async function run({ tls = false, against, runs = 7, seconds }) {
  const server = await (tls ? startTlsServer() : startServer());
  const { address } = server;
  try {
    console.log(tls ? "Redis over TLS" : "Redis");
    const contenders = {};
    for (const [name, from] of builds(against)) {
      contenders[name] = contender(CONTENDERS, "syncguard", { from, address });
    }
    contenders["ioredis by hand"] = contender(CONTENDERS, "ioredis", { address });
    const limits = [];
    const afterRun = async () => limits.push(await pairLimit(server));
    const results = await comparePairs(contenders, IN_FLIGHT, { runs, seconds, afterRun });
    printLimit(results, limits);
    await printScripts(server, Math.min(runs, 5));
    await printIdle(contenders);
  } finally {
    endMembers();
    await server.stop();
  }
}

/** What there is of the pairs that the server can serve, which has no TLS to do. */
function printLimit(results, limits) {
  console.log(`\nredis-benchmark, 16 × 16 in flight, without TLS: ${spread(limits)} pairs/s`);
  const of = ({ samples }) => ratio(samples.syncguard.map(({ rate }) => rate), limits); // prettier-ignore
  printTable([
    ["in flight", ...results.map(({ inFlight }) => String(inFlight))],
    ["syncguard, of that", ...results.map(of)],
  ]);
}

async function printScripts(server, runs) {
  const costs = await scriptCosts(server, runs);
  console.log("\nserver time of a script, µs per call (usec_per_call)");
  printTable([
    ["script", "core", "with cjson", "ratio"],
    ...costs.map(({ name, core, cjson }) => [
      name,
      spread(core, 2),
      spread(cjson, 2),
      ratio(core, cjson),
    ]),
  ]);
}

/** An idle process burns no CPU, whatever its threads did before. */
async function printIdle(contenders) {
  console.log(`\nidle for ${IDLE_MS / 1_000} s with connections open: CPU, ms`);
  const spent = Object.entries(contenders).map(async ([name, { idle }]) => [
    name,
    (await idle(IDLE_MS)).toFixed(1),
  ]);
  printTable([["", "ms"], ...(await Promise.all(spent))]);
}
