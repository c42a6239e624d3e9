// Who waits for a lock: how fast it is handed over, who gets it, and what waiting costs.

import { setTimeout as sleep } from "node:timers/promises";
import { builds } from "../lib/built.mjs";
import { chosen } from "../lib/chosen.mjs";
import { endMembers, startMember } from "../lib/members.mjs";
import { median, printTable } from "../lib/table.mjs";
import { open, stores } from "./stores.mjs";
import { HOLD_MS } from "./tasks.mjs";

const TASKS = new URL("tasks.mjs", import.meta.url);
const WAITERS = 16;

/** What a hand-over tells: how it is headed, and written. What must not be there is counted over all runs. */
const COLUMNS = {
  rate: ["locks/s", (value) => value.toFixed(0)],
  ideal: ["of ideal", (value) => `${(100 * value).toFixed(0)} %`],
  p99: ["p99 wait", (value) => `${value.toFixed(0)} ms`],
  longest: ["longest", (value) => `${value.toFixed(0)} ms`],
  share: ["smallest share", (value) => `${(100 * value).toFixed(0)} %`],
  atOnce: ["at once", String, sum],
  errors: ["errors", String, sum],
};

export async function run({ runs = 1, seconds = 10, against, stores: names }) {
  const headings = Object.values(COLUMNS).map(([heading]) => heading);
  const rows = [[`${WAITERS} wait for one lock`, "", "processes", ...headings]];
  const costs = [["1,000 wait for 1,000 locks", "connections", "CPU while nothing is freed"]];
  const crowds = [["2,000 wait for one lock", "in order", "commands each"]];
  for (const name of chosen("stores", Object.keys(stores), names)) {
    const { place, server } = await stores[name]();
    try {
      const results = await handOvers(place, builds(against), { runs, ms: seconds * 1_000 });
      for (const { build, processes, samples } of results) {
        const cells = Object.entries(COLUMNS).map(([field, [, write, of = median]]) =>
          write(of(samples.map((sample) => sample[field]))),
        );
        rows.push([name, build, String(processes), ...cells]);
      }
      const backend = await open(place);
      costs.push([name, ...(await idle(backend, server))]);
      crowds.push([name, ...(await crowd(backend, server))]);
      await backend.close();
    } finally {
      endMembers();
      await server.stop();
    }
  }
  console.log(
    `each holds the lock for ${HOLD_MS} ms, for ${seconds} s, medians of ${runs} runs; ideal: one lock per hold and round trip, as measured\n`,
  );
  printTable(rows);
  console.log();
  printTable(costs);
  console.log();
  printTable(crowds);
}

/** The hand-overs of each build, in one process and in four. They take turns. */
async function handOvers(place, contenders, { runs, ms }) {
  const roundTrips = new Map();
  for (const [, from] of contenders) {
    const member = startMember("waiting", TASKS, place, from);
    roundTrips.set(from, await member.ask("roundTrip"));
    await member.stop();
  }
  const results = [1, 4].flatMap((processes) =>
    contenders.map(([build, from]) => ({ build, from, processes, samples: [] })),
  );
  for (let run = 0; run < runs; run += 1) {
    // Each goes first as often as the others.
    const order = [...results];
    order.push(...order.splice(0, run % order.length));
    for (const { from, processes, samples } of order) {
      samples.push(await handOver(place, from, { processes, ms, roundTripMs: roundTrips.get(from) })); // prettier-ignore
    }
  }
  return results;
}

/** Processes that want the same lock all the time. */
async function handOver(place, from, { processes, ms, roundTripMs }) {
  const members = Array.from({ length: processes }, () =>
    startMember("waiting", TASKS, place, from),
  );
  await Promise.all(members.map((member) => member.ask("warm")));
  const start = performance.now();
  const task = { waiters: WAITERS / processes, ms };
  const reports = await Promise.all(members.map((member) => member.ask("handOver", task)));
  const elapsed = (performance.now() - start) / 1_000;
  await Promise.all(members.map((member) => member.stop()));
  const holds = reports.flatMap((report) => report.holds).sort(([a], [b]) => a - b);
  const waits = reports.flatMap((report) => report.waits).sort((a, b) => a - b);
  const heldMs = sum(holds.map(([from, to]) => to - from)) / holds.length;
  const rate = holds.length / elapsed;
  const smallest = Math.min(...reports.map((report) => report.holds.length));
  return {
    rate,
    ideal: (rate * (heldMs + roundTripMs)) / 1_000,
    p99: waits[Math.floor(waits.length * 0.99)],
    longest: waits.at(-1),
    share: (smallest * processes) / holds.length,
    atOnce: holds.filter(([from], index) => index > 0 && from < holds[index - 1][1]).length,
    errors: sum(reports.map((report) => report.errors)),
  };
}

function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}

/** What a thousand cost that wait while nothing is freed. */
async function idle(backend, server) {
  const keys = Array.from({ length: 1_000 }, (_, number) => `idle:${number}`);
  const held = await Promise.all(keys.map((key) => backend.acquire({ key, ttlMs: 600_000 })));
  const controller = new AbortController();
  const { signal } = controller;
  const acquisition = { timeoutMs: 600_000, retryDelayMs: 600_000 };
  const waiters = keys.map((key) =>
    backend.lock(key, { acquisition, signal }).then(
      () => undefined,
      () => undefined,
    ),
  );
  await sleep(2_000);
  const list = await server.admin?.client("LIST", "TYPE", "pubsub");
  const cpu = process.cpuUsage();
  await sleep(5_000);
  const { user, system } = process.cpuUsage(cpu);
  controller.abort();
  await Promise.all(waiters);
  await Promise.all(held.map((lock) => lock.release()));
  return [
    list === undefined ? "–" : String(list.trim().split("\n").length),
    `${((user + system) / 50_000).toFixed(2)} %`,
  ];
}

/** Two thousand that want one lock once. */
async function crowd(backend, server) {
  const key = "crowd";
  const first = await backend.acquire({ key, ttlMs: 600_000 });
  const served = [];
  const acquisition = { timeoutMs: 600_000, retryDelayMs: 600_000 };
  const waiters = Array.from({ length: 2_000 }, async (_, number) => {
    const held = await backend.lock(key, { acquisition });
    served.push(number);
    await held.release();
  });
  await sleep(500);
  const before = await commands(server);
  await first.release();
  await Promise.all(waiters);
  const after = await commands(server);
  return [
    served.every((number, index) => number === index) ? "yes" : "no",
    Number.isNaN(after) ? "–" : ((after - before) / served.length).toFixed(3),
  ];
}

/** How many scripts a Redis server has run. */
async function commands(server) {
  const stats = (await server.admin?.info("commandstats")) ?? "";
  return Number(/^cmdstat_evalsha:calls=(\d+)/m.exec(stats)?.[1] ?? Number.NaN);
}
