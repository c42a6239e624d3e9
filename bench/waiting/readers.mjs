// Who reads under shared locks beside writers: how long each waits. And what a join costs beside an acquisition.

import { root } from "../../scripts/lib/paths.mjs";
import { chosen } from "../lib/chosen.mjs";
import { endMembers, startMember } from "../lib/members.mjs";
import { median, printTable } from "../lib/table.mjs";
import { stores } from "./stores.mjs";

const TASKS = new URL("tasks.mjs", import.meta.url);
const READERS = { processes: 3, loops: 2 };
const shared = { key: "catalogue", mode: "shared" };

/** Each scene: for how long readers and writers hold the lock. Writers pause, so that readers come in without their help, too. */
const SCENES = [
  { name: "15 to 35 ms", reads: [15, 35], writes: [5, 5], pauseMs: 20, writers: [0, 1, 2, 4] },
  { name: "5 to 10 s", reads: [5_000, 10_000], writes: [5, 5], pauseMs: 1_000, writers: [1], least: 60 },
]; // prettier-ignore

export async function run({ runs = 1, seconds = 10, locks = 1_000, stores: names }) {
  const rows = [["reads last", "store", "writers", ...["reads", "writes"].flatMap((what) => [`${what}/s`, "p99", "longest"])]]; // prettier-ignore
  const joins = [["", "store", "acquire", "join", "ratio"]];
  for (const name of chosen("stores", Object.keys(stores), names)) {
    const { place, server } = await stores[name]();
    try {
      for (const scene of SCENES) {
        for (const writers of scene.writers) {
          const played = [];
          const lasts = Math.max(seconds, scene.least ?? 0);
          for (let at = 0; at < runs; at += 1)
            played.push(await play(place, scene, writers, lasts));
          const of = (read) => median(played.map(read));
          const cells = ["reads", "writes"].flatMap((what) => [
            of((all) => all[what].length / lasts).toFixed(1),
            ...[0.99, 1].map((part) => `${of((all) => at(all[what], part)).toFixed(0)} ms`),
          ]);
          rows.push([scene.name, name, String(writers), ...cells]);
        }
      }
      joins.push([`${locks} at once, each`, name, ...(await costOf(place, { runs, locks }))]);
    } finally {
      endMembers();
      await server.stop();
    }
  }
  console.log(`each for ${seconds} s or longer, medians of ${runs} runs\n`);
  printTable(rows);
  console.log();
  printTable(joins);
}

const at = (waits, part) => waits[Math.min(Math.floor(waits.length * part), waits.length - 1)] ?? 0;

/** The waits of both, in order. */
async function play(place, { reads, writes, pauseMs }, writers, seconds) {
  const start = () => startMember("readers", TASKS, place, root);
  const readers = Array.from({ length: READERS.processes }, start);
  const others = Array.from({ length: writers }, start);
  await Promise.all([...readers, ...others].map((member) => member.ask("warm")));
  const ms = seconds * 1_000;
  const read = { wants: Array(READERS.loops).fill(shared), holdMs: reads, ms };
  const write = { wants: [shared.key], holdMs: writes, pauseMs, ms };
  const all = async (members, task) => {
    const waits = await Promise.all(members.map((member) => member.ask("again", task)));
    return waits.flat().sort((a, b) => a - b);
  };
  const played = await Promise.all([all(readers, read), all(others, write)]);
  await Promise.all([...readers, ...others].map((member) => member.stop()));
  return { reads: played[0], writes: played[1] };
}

/** Microseconds for each of so many acquisitions at once, of keys of their own and of one that all share, in turns. */
async function costOf(place, { runs, locks }) {
  const member = startMember("readers", TASKS, place, root);
  await member.ask("warm");
  const each = [];
  for (let run = 0; run < 2 * runs + 1; run += 1) {
    const alone = await member.ask("atOnce", { locks, isShared: false });
    const joined = await member.ask("atOnce", { locks, isShared: true });
    // The first warms up.
    if (run > 0) each.push([alone, joined]);
  }
  await member.stop();
  const micros = (column) => `${((1_000 * median(each.map((one) => one[column]))) / locks).toFixed(0)} µs`; // prettier-ignore
  const ratio = median(each.map(([alone, joined]) => joined / alone));
  return [micros(0), micros(1), ratio.toFixed(2)];
}
