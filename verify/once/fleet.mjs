// Three instances with the same jobs and clocks that differ by ten minutes, some of which are killed in the middle of a job: how often is
// each period of each job done?

import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

const MINUTE_MS = 60_000;
const instance = fileURLToPath(new URL("instance.mjs", import.meta.url));

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

/**
 * Lets the instances do `jobs` jobs for `periods` periods.
 *
 * @returns what became of them: see {@link countOf}
 */
export async function runFleet({ place, rule, jobs, periods, plan = PLAN }) {
  const folder = mkdtempSync(join(tmpdir(), "syncguard-once-"));
  const file = join(folder, "notes");
  const startNs = String(process.hrtime.bigint());
  const fleet = { isOver: false, kills: 0, wrong: [] };
  const settings = { place, rule, file, jobs, plan, startNs };
  const members = Object.keys(plan.aheadMs).map((name) => keep({ ...settings, name }, fleet));
  const { periodMs, speed, aheadMs } = plan;
  // The last period of the last job, by the slowest clock.
  const lastMs = (periods + 2) * periodMs + Math.max(...Object.values(aheadMs));
  await sleep(lastMs / speed);
  fleet.isOver = true;
  for (const { child } of members) child().kill("SIGTERM");
  await Promise.all(members.map(({ ended }) => ended));
  const notes = existsSync(file) ? readFileSync(file, "utf8") : "";
  rmSync(folder, { recursive: true, force: true });
  return { kills: fleet.kills, wrong: fleet.wrong, ...countOf(notes, { rule, jobs, periods }) };
}

/** Starts an instance, and again whenever it was killed. */
function keep(settings, fleet) {
  let child;
  const start = () =>
    new Promise((resolve) => {
      child = spawn(process.execPath, [instance, JSON.stringify(settings)], {
        env: { ...process.env, ...wrongClock(settings.plan.aheadMs[settings.name]) },
        stdio: ["ignore", "inherit", "pipe"],
      });
      const said = [];
      child.stderr.on("data", (text) => said.push(text));
      child.on("close", (code, signal) => {
        // Told to end before it has begun to listen for that, it has done nothing yet.
        const isLate = signal === "SIGTERM" && fleet.isOver;
        if (signal === "SIGKILL") fleet.kills += 1;
        else if (code !== 0 && !isLate)
          fleet.wrong.push(`${settings.name} ended with ${code ?? signal}: ${said.join("")}`);
        resolve();
      });
    });
  const all = async () => {
    do await start();
    while (!fleet.isOver && fleet.wrong.length === 0);
  };
  return { child: () => child, ended: all() };
}

/** What sets the clock of a process, but not what timers go by. */
function wrongClock(aheadMs) {
  const library = readdirSync("/usr/lib")
    .map((folder) => join("/usr/lib", folder, "faketime/libfaketimeMT.so.1"))
    .find((path) => existsSync(path));
  if (library === undefined)
    throw new Error("libfaketime is missing: install the package faketime");
  const seconds = aheadMs / 1000;
  return {
    LD_PRELOAD: library,
    FAKETIME: `${seconds < 0 ? "" : "+"}${seconds}s`,
    DONT_FAKE_MONOTONIC: "1",
  };
}

/** How often each period of each job was done; those that count are the first `periods` of each. */
function countOf(notes, { rule, jobs, periods }) {
  const counts = { begun: new Map(), ended: new Map(), stored: new Map(), found: new Map() };
  const failures = {};
  for (const line of notes.split("\n").filter(Boolean)) {
    const [what, job, period] = line.split(" ");
    if (Number(period) > periods) continue;
    const key = `${job} ${period}`;
    if (what in counts) counts[what].set(key, (counts[what].get(key) ?? 0) + 1);
    else failures[what] = (failures[what] ?? 0) + 1;
  }
  const done = rule === "once" ? counts.stored : counts.ended;
  const twice = (map) => [...map.values()].filter((count) => count > 1).length;
  const sum = (map) => [...map.values()].reduce((total, count) => total + count, 0);
  return {
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
}
