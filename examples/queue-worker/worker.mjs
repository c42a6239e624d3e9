// A worker: takes jobs that nobody else works on. A job takes longer than its lock lasts; the lock extends itself.

import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { lock } from "syncguard";

const [, folder] = process.argv.slice(2);
// Stands for a queue: a file for each job that is to be done, and one for each that is done.
const [jobs, done] = [join(folder, "jobs"), join(folder, "done")];

const stopping = new AbortController();
process.once("SIGTERM", () => stopping.abort());

for (;;) {
  const waiting = await readdir(jobs);
  if (waiting.length === 0 || stopping.signal.aborted) break;
  let worked = false;
  for (const job of waiting) {
    if (stopping.signal.aborted) break;
    worked = (await tryJob(job)) || worked;
  }
  // What is left is worked on by others, and comes back if they die.
  if (!worked) await sleep(200, undefined, { signal: stopping.signal }).catch(() => undefined);
}
console.log(stopping.signal.aborted ? "stopped" : "nothing left");

/** Whether this worker has done the job. */
async function tryJob(job) {
  try {
    return await lock((handle) => work(job, handle), {
      key: `job:${job}`,
      // So soon is the job free again after a worker has died.
      ttlMs: 1_000,
      autoExtend: true,
      signal: stopping.signal,
      acquisition: { maxRetries: 0 },
    });
  } catch (error) {
    if (error.code === "AcquisitionTimeout") return false;
    // The job stays where it is, for whoever comes next.
    const reason = stopping.signal.aborted ? "put back" : (error.cause?.code ?? error.message);
    console.log(`${job}: ${reason}`);
    return false;
  }
}

async function work(job, { fence, signal }) {
  // Done between the look at the queue and the lock?
  if (!(await readdir(jobs)).includes(job)) return false;
  console.log(`takes ${job}`);
  const { takesMs } = JSON.parse(await readFile(join(jobs, job), "utf8"));
  await sleep(takesMs, undefined, { signal }); // ends when the lock is lost, or the worker stopped
  // A second result is refused, whoever it comes from.
  await writeFile(join(done, job), JSON.stringify({ fence }), { flag: "wx" });
  await rm(join(jobs, job));
  console.log(`finishes ${job} under fence ${fence}`);
  return true;
}
