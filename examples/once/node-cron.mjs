// node-cron: it gives each run the time of the schedule, which names the period on every machine.

import cron from "node-cron";

/** As `cron.schedule()`, for a job that runs once for each time, on whichever machine comes first. */
export function scheduleOnce(backend, name, pattern, job) {
  const ask = async ({ date }) => {
    const options = { due: date, ttlMs: 60_000, autoExtend: true };
    const run = await backend.once(name, options, (handle) => job(handle, date));
    if (!run.ran && run.reason === "ahead") console.log(name, date, "is before", run.lastDue);
  };
  return cron.schedule(pattern, ask, { name, noOverlap: true });
}

/**
 * For `cron.setRunCoordinator()`, if the jobs are `distributed: true` already. node-cron does not tell a coordinator whether a run has
 * failed: a run that fails counts as done. {@link scheduleOnce} leaves it open.
 */
export function runCoordinator(backend) {
  const running = new Map();
  return {
    shouldRun: (run, ttlMs) =>
      new Promise((resolve, reject) => {
        // The name of the job, a colon, and the time of the schedule.
        const name = run.slice(0, -25);
        const due = new Date(run.slice(-24));
        const ended = backend.once(name, { due, ttlMs, autoExtend: true }, () => {
          resolve(true);
          return new Promise((end) => running.set(run, { end, ended }));
        });
        ended.then(({ ran }) => resolve(ran), reject);
      }),
    async onComplete(run) {
      const { end, ended } = running.get(run);
      running.delete(run);
      end();
      await ended;
    },
  };
}
