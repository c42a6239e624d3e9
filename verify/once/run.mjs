// npm run torture -- once [STORES JOBS PERIODS]: three instances do jobs once per period on each store, while some are killed; beside it, by
// the rules that others have (docs/once.md, "Counted").

import { startCluster } from "../../bench/redis-cluster/cluster.mjs";
import { stores } from "../../bench/waiting/stores.mjs";
import { runFleet } from "./fleet.mjs";

/** Rules of others, by the store that they are tried on. */
const REFERENCES = { shedlock: "redis", "node-cron": "sqlite", nothing: "sqlite" };
const ALL = "redis,redis-cluster,postgres,sqlite,firestore,shedlock,node-cron,nothing";

/** Resolves to the exit code. */
export async function runPeriods([names = ALL, jobs = "40", periods = "25"]) {
  // All at once: they wait most of the time.
  const rows = await Promise.all(
    names.split(",").map((name) => row(name, Number(jobs), Number(periods))),
  );
  const shown = ["kills", "periods", "begun", "cutShort", "endedTwice", "twice", "missed"];
  console.table(Object.fromEntries(rows.map((row) => [row.name, row])), shown);
  let isRight = true;
  for (const { name, twice, missed, wrong, failures } of rows) {
    if (Object.keys(failures).length > 0) console.log(name, failures);
    for (const text of wrong) console.error(`${name}: ${text}`);
    const isOurs = !(name in REFERENCES);
    if (wrong.length > 0 || (isOurs && twice + missed > 0)) isRight = false;
  }
  return isRight ? 0 : 1;
}

async function row(name, jobs, periods) {
  const rule = name in REFERENCES ? name : "once";
  const { place, server } = await start(REFERENCES[name] ?? name);
  try {
    return { name, ...(await runFleet({ place, rule, jobs, periods })) };
  } finally {
    await server.stop();
  }
}

async function start(name) {
  if (name !== "redis-cluster") return await stores[name]();
  const server = await startCluster(3);
  return { place: { kind: "redis", at: server.url }, server };
}
