// Many loops of one process that each want several things: what they get, and what is left of it once one thing is held elsewhere.

import { builds } from "../lib/built.mjs";
import { chosen } from "../lib/chosen.mjs";
import { endMembers, startMember } from "../lib/members.mjs";
import { median, printTable } from "../lib/table.mjs";
import { stores } from "./stores.mjs";

const TASKS = new URL("tasks.mjs", import.meta.url);
const DISTANCE = new URL("distance.mjs", import.meta.url);
const slotOf = (slots) => ({ key: "pool", slots });
const oneOf = (name) => ({ name, of: 1_000 });

/** Each scene: what its loops want, first without and then beside what is `held`, or at first without the `others` that they want. */
const SCENES = [
  { name: "100 want an order of 1,000 and a slot of 20", loops: 100, wants: [oneOf("order"), slotOf(20)], holdMs: 5, held: "order:7" },
  { name: "64 want two accounts of 1,000", loops: 64, wants: [oneOf("account"), oneOf("account")], holdMs: 0, held: "account:7" },
  { name: "64 want a slot of 10, then a key of 1,000 as well, 5 ms away", loops: 64, wants: [slotOf(10)], others: [oneOf("key")], holdMs: 0, awayMs: 5 },
]; // prettier-ignore

export async function run({ runs = 1, seconds = 10, against, stores: names }) {
  const rows = [["loops", "store", "", "grants/s", "then", "kept", "worst second", "longest gap"]];
  const known = Object.keys(stores).filter((name) => name === "redis" || name === "postgres");
  for (const name of chosen("stores", known, names)) {
    const { place, server } = await stores[name]();
    try {
      for (const scene of SCENES) {
        const played = new Map(builds(against).map(([build]) => [build, []]));
        for (let at = 0; at < runs; at += 1) {
          for (const [build, from] of builds(against)) {
            played.get(build).push(await play(place, from, scene, seconds * 1_000));
          }
        }
        for (const [build, samples] of played) {
          const of = (read) => median(samples.map(read));
          rows.push([
            ...[scene.name, name, build, of(({ before }) => before).toFixed(0)],
            ...[of(({ then }) => then).toFixed(0), of(({ kept }) => kept).toFixed(2)],
            ...[of(({ worst }) => worst).toFixed(2), `${of(({ gap }) => gap).toFixed(0)} ms`],
          ]);
        }
      }
    } finally {
      endMembers();
      await server.stop();
    }
  }
  console.log(
    `each for ${seconds} s, medians of ${runs} runs; kept and worst second: beside the rate before\n`,
  );
  printTable(rows);
}

async function play(place, from, { loops, wants, others = [], holdMs, held, awayMs }, ms) {
  const distance = awayMs === undefined ? undefined : startMember("distance", DISTANCE);
  const at = (await distance?.ask("to", { url: place.at, awayMs })) ?? place.at;
  const [worker, other] = [at, place.at].map((at) => startMember("workers", TASKS, { ...place, at }, from)); // prettier-ignore
  await Promise.all([worker, other].map((member) => member.ask("warm")));
  const first = await worker.ask("work", { loops, wants, holdMs, ms });
  const before = first.length / (ms / 1_000);
  if (held !== undefined) await other.ask("hold", { key: held });
  const grants = await worker.ask("work", { loops, wants: [...wants, ...others], holdMs, ms });
  await Promise.all([worker, other, distance].map((member) => member?.stop()));
  const then = grants.length / (ms / 1_000);
  const gaps = [...grants, ms].map((at, number) => at - (grants[number - 1] ?? 0));
  const perSecond = Array.from({ length: Math.floor(ms / 1_000) }, (_, second) =>
    grants.filter((at) => Math.floor(at / 1_000) === second).length,
  ); // prettier-ignore
  const worst = Math.min(...perSecond) / before;
  return { before, then, kept: then / before, worst, gap: Math.max(...gaps) };
}
