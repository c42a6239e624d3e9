// Who waits for a lock: how fast it is handed over, who gets it, and what waiting costs.

import { fork } from "node:child_process";
import { once } from "node:events";
import { cpus } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { median, printTable } from "../lib/table.mjs";
import { open, stores } from "./stores.mjs";

const RUN_MS = Number(process.env.BENCH_RUN_MS ?? 10_000);
const STORES = (process.env.BENCH_STORES ?? Object.keys(stores).join()).split(",");
const HOLD_MS = 5;
const MEMBER = fileURLToPath(new URL("member.mjs", import.meta.url));

export async function run() {
  console.log(
    `on this machine, ${cpus().length} × ${cpus()[0]?.model}, Node.js ${process.version}`,
  );
  const rows = [
    ["16 wait for one lock", "processes", "locks/s", "of ideal", "p99 wait", "longest", "smallest share", "at once", "errors"], // prettier-ignore
  ];
  const costs = [["1,000 wait for 1,000 locks", "connections", "CPU while nothing is freed"]];
  const crowds = [["2,000 wait for one lock", "in order", "commands each"]];
  for (const name of STORES) {
    const { place, server } = await stores[name]();
    try {
      const backend = await open(place);
      const roundTripMs = await roundTrip(backend);
      for (const processes of [1, 4]) {
        const result = await handOver(place, processes, 16 / processes, roundTripMs);
        rows.push([name, String(processes), ...result]);
      }
      costs.push([name, ...(await idle(backend, server))]);
      crowds.push([name, ...(await crowd(backend, server))]);
      await backend.close();
    } finally {
      await server.stop();
    }
  }
  console.log(
    `each holds the lock for ${HOLD_MS} ms, ${RUN_MS} ms long; ideal: one lock per hold and round trip, as measured\n`,
  );
  printTable(rows);
  console.log();
  printTable(costs);
  console.log();
  printTable(crowds);
}

/** Half of what a lone process takes for a lock besides holding it; a machine that has slept takes longer. */
async function roundTrip(backend) {
  const times = [];
  for (let number = 0; number < 200; number += 1) {
    const start = performance.now();
    const lock = await backend.acquire({ key: "alone", ttlMs: 30_000 });
    const granted = performance.now();
    await sleep(HOLD_MS);
    const ended = performance.now();
    await lock.release();
    times.push((granted - start + performance.now() - ended) / 2);
  }
  return median(times);
}

/** Processes that want the same lock all the time. */
async function handOver(place, processes, waiters, roundTripMs) {
  const members = Array.from({ length: processes }, () => fork(MEMBER));
  const task = { place, waiters, holdMs: HOLD_MS, key: `hand-over:${processes}` };
  const untilMs = Date.now() + RUN_MS + 1_500;
  for (const member of members) member.send({ ...task, untilMs });
  await Promise.all(members.map((member) => once(member, "message")));
  const start = process.hrtime.bigint();
  for (const member of members) member.send("go");
  const reports = await Promise.all(
    members.map(async (member) => (await once(member, "message"))[0]),
  );
  const seconds = Number(process.hrtime.bigint() - start) / 1e9;
  const holds = reports.flatMap((report) => report.holds).sort(([a], [b]) => a - b);
  const waits = reports.flatMap((report) => report.waits).sort((a, b) => a - b);
  const heldMs = holds.reduce((sum, [from, to]) => sum + to - from, 0) / holds.length;
  const rate = holds.length / seconds;
  const share = Math.min(...reports.map((report) => report.holds.length)) / holds.length;
  return [
    rate.toFixed(0),
    `${((100 * rate * (heldMs + roundTripMs)) / 1_000).toFixed(0)} %`,
    `${waits[Math.floor(waits.length * 0.99)].toFixed(0)} ms`,
    `${waits.at(-1).toFixed(0)} ms`,
    `${(100 * share * processes).toFixed(0)} %`,
    String(holds.filter(([from], index) => index > 0 && from < holds[index - 1][1]).length),
    String(reports.reduce((sum, report) => sum + report.errors, 0)),
  ];
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
