// croner: the time of a run is when it was started, by the machine's clock. The period is that time, rounded down to the schedule's.

import { Cron } from "croner";

/** A job that runs once in each period of `everyMs`, on whichever machine comes first. */
export function cronOnce(backend, name, pattern, everyMs, job) {
  return new Cron(pattern, { name, protect: true }, async () => {
    const due = Math.floor(Date.now() / everyMs);
    const options = { due, ttlMs: 60_000, autoExtend: true };
    const run = await backend.once(name, options, (handle) => job(handle, due));
    if (!run.ran && run.reason === "ahead") console.log(name, due, "is before", run.lastDue);
  });
}
