// Who needs several things at once, among others who each need one of them: how long it waits, and what the others keep.

import { builds } from "../lib/built.mjs";
import { chosen } from "../lib/chosen.mjs";
import { endMembers, startMember } from "../lib/members.mjs";
import { median, printTable } from "../lib/table.mjs";
import { stores } from "./stores.mjs";

const TASKS = new URL("tasks.mjs", import.meta.url);
const KEYS = ["a", "b", "c", "d"];
const pool = { key: "pool", slots: 4 };

/**
 * Each scene: what the loops of each process want, for how long they hold it, what one more process wants, and
 * how many times as long as the others it is played.
 */
const SCENES = [
  { name: "four keys, 16 singles of 5 ms", processes: 4, wants: KEYS, all: KEYS, holdMs: [5, 5] },
  { name: "four keys, 16 singles of 30 ms", processes: 4, wants: KEYS, all: KEYS, holdMs: [30, 30] },
  { name: "four keys, 16 singles of 1 to 3 s", processes: 4, wants: KEYS, all: KEYS, holdMs: [1_000, 3_000], times: 12 },
  { name: "4 of 4 slots, 6 singles of 20 to 40 ms", processes: 3, wants: [pool, pool], all: { ...pool, take: 4 }, holdMs: [20, 40] },
]; // prettier-ignore

export async function run({ runs = 1, seconds = 10, against, stores: names }) {
  const rows = [["wants", "store", "", "sets", "p50", "p99", "longest", "singles/s", "kept"]];
  for (const name of chosen("stores", Object.keys(stores), names)) {
    const { place, server } = await stores[name]();
    try {
      for (const scene of SCENES) {
        for (const [build, from] of builds(against)) {
          const played = [];
          for (let at = 0; at < runs; at += 1) played.push(await play(place, from, scene, seconds));
          const of = (read) => median(played.map(read));
          const ms = (part) => of(({ waits }) => waits.at(Math.min(Math.floor(waits.length * part), waits.length - 1)) ?? Infinity); // prettier-ignore
          rows.push([
            ...[scene.name, name, build, String(of(({ waits }) => waits.length))],
            ...[0.5, 0.99, 1].map((part) => `${ms(part).toFixed(0)} ms`),
            of(({ rate }) => rate).toFixed(0),
            `${(100 * of(({ kept }) => kept)).toFixed(0)} %`,
          ]);
        }
      }
    } finally {
      endMembers();
      await server.stop();
    }
  }
  console.log(
    `each for ${seconds} s, or 12 times as long where locks are held for seconds, medians of ${runs} runs; kept: beside the rate without the set\n`,
  );
  printTable(rows);
}

/** The singles alone, then beside whoever wants everything. */
async function play(place, from, { processes, wants, all, holdMs, times = 1 }, perScene) {
  const seconds = times * perScene;
  const start = () => startMember("gathering", TASKS, place, from);
  const members = Array.from({ length: processes }, start);
  const one = start();
  await Promise.all([one, ...members].map((member) => member.ask("warm")));
  const ms = seconds * 1_000;
  const singles = async () => {
    const task = { wants, holdMs, ms };
    const waits = await Promise.all(members.map((member) => member.ask("again", task)));
    return waits.flat().length / seconds;
  };
  const alone = await singles();
  // It comes back after a while: by then the others have everything again.
  const task = { wants: [all], holdMs: [5, 5], pauseMs: 100, ms };
  const [rate, waits] = await Promise.all([singles(), one.ask("again", task)]);
  await Promise.all([one, ...members].map((member) => member.stop()));
  return { rate, kept: rate / alone, waits: waits.sort((a, b) => a - b) };
}
