// This package beside what else a user would pick, on the same work. Each contender has processes of its own, which live
// as long as a row is measured, and they take turns: in each run, everybody goes once, and everybody goes first as often.

import { mkdirSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { startServer as startFirestore } from "../firestore/server.mjs";
import { startServer as startPostgres } from "../postgres/server.mjs";
import { startServer as startRedis } from "../redis/server.mjs";
import { chosen } from "../lib/chosen.mjs";
import { endMembers } from "../lib/members.mjs";
import { printTable } from "../lib/table.mjs";
import { contenders, storeOf } from "./contenders.mjs";
import { figure, inRow, levels, VARIED } from "./figures.mjs";
import { machine, versions } from "./machine.mjs";
import { urlOf } from "./postgres.mjs";
import { rows } from "./rows.mjs";

/** The numbers of a row that are printed. */
const SHOWN = {
  pairs: { rate: "pairs/s", p99: "p99, µs", mainCpu: "main thread CPU, µs/pair" },
  sets: { rate: "pairs/s", p99: "p99, µs", mainCpu: "main thread CPU, µs/pair" },
  slots: { rate: "pairs/s", p99: "p99, µs", mainCpu: "main thread CPU, µs/pair" },
  handOffSlots: { share: "held, of the time", p99: "p99 wait, ms" },
  contended: { rate: "attempts/s", mainCpu: "main thread CPU, µs/attempt" },
  handOff: { share: "held, of the time", p99: "p99 wait, ms" },
  holding: { mainCpu: "main thread CPU", loopP99: "loop late p99, ms", lost: "lost" },
  http: { rate: "requests/s", p99: "p99, ms", loopP99: "loop late p99, ms" },
};

const STARTS = { redis: startRedis, postgres: startPostgres, firestore: startFirestore };

export async function run(options) {
  const { runs = 7, seconds = 0.5, locks = 10_000, json, busy, load } = options;
  const names = chosen("rows", Object.keys(rows), options.rows);
  const stores = chosen("stores", Object.keys(STARTS), options.stores);
  // Not to find out after the run.
  if (json !== undefined) mkdirSync(dirname(json), { recursive: true });
  const started = performance.now();
  const servers = {};
  const samples = {};
  try {
    const needed = new Set(names.flatMap((name) => rows[name].who.map(storeOf)));
    for (const store of stores) if (needed.has(store)) servers[store] = await STARTS[store]();
    if (servers.postgres !== undefined) {
      const { setupSchema } = await import("syncguard/postgres");
      await setupSchema(urlOf(servers.postgres.port));
    }
    for (const name of names) {
      const who = rows[name].who.filter((id) => stores.includes(storeOf(id)));
      samples[name] = await measure(rows[name], who, { runs, seconds, locks, servers });
      print(name, samples[name]);
    }
  } finally {
    endMembers();
    await Promise.all(Object.values(servers).map((server) => server.stop()));
  }
  const minutes = (performance.now() - started) / 60_000;
  console.log(`${minutes.toFixed(1)} minutes`);
  if (json === undefined) return;
  const report = {
    ...{ date: new Date().toISOString().slice(0, 10), minutes, busy, load },
    ...{ machine: machine(), versions: versions(), runs, seconds, locks, samples },
  };
  writeFileSync(json, `${JSON.stringify(report)}\n`);
}

/** All samples of a row: `{ contender, run, ...variant, ...measured }`. */
async function measure({ variants, start, sample }, who, options) {
  const samples = [];
  const running = new Map();
  try {
    for (const id of who) {
      const { port, host } = options.servers[storeOf(id)];
      running.set(id, await start(id, host ?? port));
    }
    for (let run = 0; run < options.runs; run += 1) {
      for (const variant of variants) {
        const order = [...who];
        order.push(...order.splice(0, run % order.length));
        for (const contender of order) {
          const measured = await sample(running.get(contender), variant, options);
          samples.push({ contender, run, ...variant, ...rounded(measured) });
        }
      }
    }
  } finally {
    await Promise.all([...running.values()].map((contender) => contender.stop()));
  }
  return samples;
}

/** Five digits are more than any of these numbers is worth. */
function rounded(measured) {
  return Object.fromEntries(
    Object.entries(measured).map(([name, value]) => [name, Number(value.toPrecision(5))]),
  );
}

function print(name, samples) {
  const report = { samples: { [name]: samples } };
  const fields = Object.keys(SHOWN[name]);
  const table = [[name, VARIED[name] ?? "", ...Object.values(SHOWN[name])]];
  for (const level of name in VARIED ? levels(report, name) : [undefined]) {
    for (const id of inRow(report, name)) {
      const medians = fields.map((field) => figure(report, name, id, field, level).value);
      table.push([
        `${storeOf(id)}: ${contenders[id].name}`,
        String(level ?? ""),
        ...medians.map((value) => value.toFixed(value < 10 ? 2 : 0)),
      ]);
    }
  }
  printTable(table);
  console.log();
}
