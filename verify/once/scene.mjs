// npm run torture -- once [STORES JOBS PERIODS]: three instances with the same jobs and clocks that differ by ten minutes, of which some are
// killed in the middle of a job, on each store; beside it, by the rules that others have (docs/once.md, "Counted"). How often is
// each period of each job done?

import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { wrongClock } from "../frame/clock.mjs";
import { noteTo } from "../frame/notes.mjs";

const MINUTE_MS = 60_000;
const INSTANCE = fileURLToPath(new URL("instance.mjs", import.meta.url));
/** Rules of others, by the store that they are tried on. */
const REFERENCES = { shedlock: "redis", "node-cron": "sqlite", nothing: "sqlite" };

/** A period stands for an hour. Times are of the schedule, but that of the job and those of the locks. */
export const PLAN = {
  periodMs: 60 * MINUTE_MS,
  /** So that an hour takes ten seconds: more than a lock of a dead holder lasts, and than an instance takes to start. */
  speed: 360,
  aheadMs: { ahead: 5 * MINUTE_MS, right: 0, behind: -5 * MINUTE_MS },
  jobMs: 20,
  killShare: 0.03,
  /** How often an instance looks at its clock. */
  askMs: 4 * MINUTE_MS,
};

export const periods = {
  stores: ["redis", "redis-cluster", "postgres", "sqlite", "firestore", ...Object.keys(REFERENCES)],
  settings: { jobs: 40, periods: 25 },
  cases: (name) => [
    { name, store: REFERENCES[name] ?? name, rule: name in REFERENCES ? name : "once" },
  ],
  // They wait most of the time.
  atOnce: true,
  run: runFleet,
  judge,
};

/** Lets the instances do `jobs` jobs for `periods` periods. */
async function runFleet({ place, rule, jobs, periods, crew, file, plan = PLAN }) {
  const startNs = String(process.hrtime.bigint());
  const task = { place, rule, file, jobs, plan, startNs };
  const fleet = { crew, note: noteTo(file), isOver: false };
  const all = Object.entries(plan.aheadMs).map(([name, ms]) =>
    keep({ ...task, name }, wrongClock(ms), fleet),
  );
  const { periodMs, speed, aheadMs } = plan;
  // The last period of the last job, by the slowest clock.
  const lastMs = (periods + 2) * periodMs + Math.max(...Object.values(aheadMs));
  await sleep(lastMs / speed);
  fleet.isOver = true;
  await crew.end("SIGTERM");
  await Promise.all(all);
}

/** Starts an instance, and again whenever it was killed. */
async function keep(task, env, fleet) {
  const settings = { env, diesBy: "SIGKILL" };
  do {
    const { signal } = await fleet.crew.start(INSTANCE, task, settings).ended;
    if (signal === "SIGKILL") fleet.note("killed", { member: task.name });
  } while (!fleet.isOver && fleet.crew.failures.length === 0);
}

/** How often each period of each job was done; those that count are the first `periods` of each. */
function judge(notes, { rule, jobs, periods }) {
  const counts = { begun: new Map(), ended: new Map(), stored: new Map(), found: new Map() };
  const failures = {};
  for (const { event, job, period } of notes.filter((note) => note.period <= periods)) {
    const key = `${job} ${period}`;
    if (event in counts) counts[event].set(key, (counts[event].get(key) ?? 0) + 1);
    else failures[event] = (failures[event] ?? 0) + 1;
  }
  const done = rule === "once" ? counts.stored : counts.ended;
  const twice = (map) => [...map.values()].filter((count) => count > 1).length;
  const sum = (map) => [...map.values()].reduce((total, count) => total + count, 0);
  const figures = {
    kills: notes.filter(({ event }) => event === "killed").length,
    periods: jobs * periods,
    begun: sum(counts.begun),
    cutShort: sum(counts.begun) - sum(counts.ended),
    /** Whose function has run to its end more than once. */
    endedTwice: twice(counts.ended),
    twice: twice(done),
    missed: jobs * periods - new Set([...done.keys(), ...counts.found.keys()]).size,
    /** Found done by others, because the one that has stored it was killed before it could say so. */
    foundOnly: [...counts.found.keys()].filter((key) => !done.has(key)).length,
    failures,
  };
  // The rules of others are there to be compared.
  return { figures, violations: rule === "once" ? violationsOf(figures) : [] };
}

function violationsOf({ periods, twice, missed }) {
  const wrong = Object.entries({ "done twice": twice, missed }).filter(([, count]) => count > 0);
  return wrong.map(([what, count]) => `${count} of ${periods} periods were ${what}`);
}
