// One of the machines: each of them has the same job in its schedule.

import { appendFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Cron } from "croner";
import { once } from "syncguard";

const [, folder] = process.argv.slice(2);
/** Stands for a day. All machines give it the same name, and ask several times in it, in case the one that began has died. */
const PERIOD_MS = 5_000;

const stopping = new AbortController();
const maxRuns = Number(process.env.RUNS ?? 16);
const job = new Cron("* * * * * *", { maxRuns, protect: true }, async () => {
  const due = Math.floor(Date.now() / PERIOD_MS);
  const options = { due, ttlMs: 1_000, autoExtend: true, signal: stopping.signal };
  try {
    const run = await once("cron:report", options, (handle) => report(due, handle));
    if (!run.ran) console.log(`${due}: ${REASONS[run.reason]}`);
  } catch (error) {
    console.log(`${due}: ${REASONS[error.code] ?? error.message}`);
  }
});

const REASONS = {
  running: "another machine is at it",
  done: "done already",
  ahead: "a later period is done: is this clock behind, or due no number that grows?",
  LockLost: "the lock was lost: stopped before anything was written",
  ABORT_ERR: "stopped",
};

async function report(due, { fence, signal }) {
  console.log(`${due}: begins, under fence ${fence}`);
  await sleep(1_000, undefined, { signal }); // the work, which ends when the lock is lost
  await appendFile(join(folder, "runs"), `${due}\n`); // stands for a row of a database
  console.log(`${due}: made the report`);
}

process.once("SIGTERM", () => {
  job.stop();
  // Ends the work under way; `once()` then releases the lock, and another machine may do it.
  stopping.abort();
});
