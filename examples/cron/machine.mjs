// One of the machines: each of them has the same job in its schedule.

import { appendFile, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Cron } from "croner";
import { lock } from "syncguard";

const [name, folder] = process.argv.slice(2);
// Stands for a row of a database: which run was the last to be finished, and under which fence.
const file = join(folder, "report.json");

const stopping = new AbortController();
const maxRuns = Number(process.env.RUNS ?? 4);
const job = new Cron("* * * * * *", { maxRuns, protect: true }, async () => {
  const due = Math.floor(Date.now() / 1_000);
  try {
    await lock((handle) => report(due, handle), {
      key: "cron:report",
      ttlMs: 5_000,
      autoExtend: true,
      signal: stopping.signal,
      // Whoever comes second has nothing to do: one attempt.
      acquisition: { maxRetries: 0 },
    });
  } catch (error) {
    console.log(`${due}: ${REASONS[error.code] ?? error.message}`);
  }
});

const REASONS = {
  AcquisitionTimeout: "another machine is at it",
  LockLost: "the lock was lost: stopped before anything was written",
  ABORT_ERR: "stopped",
};

async function report(due, { fence, signal }) {
  // A machine whose clock is behind comes when another has finished.
  const last = await finished();
  if (last.due >= due) return console.log(`${due}: done by ${last.by} already`);
  await sleep(200, undefined, { signal }); // the work, which ends when the lock is lost
  if (fence < last.fence) throw new Error("a later holder has written already");
  await writeFile(`${file}.new`, JSON.stringify({ due, by: name, fence }));
  await rename(`${file}.new`, file);
  await appendFile(join(folder, "runs"), `${due}\n`);
  console.log(`${due}: made the report, under fence ${fence}`);
}

async function finished() {
  try {
    return JSON.parse(await readFile(file, "utf8"));
  } catch (error) {
    if (error.code !== "ENOENT") throw error;
    return { due: 0, fence: "" };
  }
}

process.once("SIGTERM", () => {
  job.stop();
  // Ends the work under way; `lock()` then releases the lock, and another machine may have it.
  stopping.abort();
});
