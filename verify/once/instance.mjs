// One of the instances: it has all jobs in its schedule, by a clock that is wrong. `libfaketime` sets the clock of the process as
// wrong as that of the schedule, so that whatever asks for the time gets it wrong.

import { setTimeout as sleep } from "node:timers/promises";
import { open } from "../../bench/waiting/stores.mjs";
import { noteTo, notesIn } from "../frame/notes.mjs";
import { RULES } from "./rules.mjs";

const { name, place, rule, file, jobs, plan, startNs } = JSON.parse(process.argv[2]);
const { speed, periodMs, aheadMs, jobMs, killShare, askMs } = plan;
const noted = noteTo(file, name);
const note = (what, job, period) => noted(what, { job, period });

/** The time of its schedule: so much faster than the machine's, and ahead of it, or behind. */
const now = () => (Number(process.hrtime.bigint() - BigInt(startNs)) / 1e6) * speed + aheadMs[name];

/** The job. Sometimes the process is killed in the middle of it, but not where one was killed in that period before. */
const work = (job, period) => async () => {
  const isLast = Math.random() < killShare && !wasBegun(job, period);
  note("begun", job, period);
  await sleep(jobMs / 2);
  if (isLast) process.kill(process.pid, "SIGKILL");
  await sleep(jobMs / 2);
  note("ended", job, period);
};

const wasBegun = (job, period) =>
  notesIn(file).some((one) => one.event === "begun" && one.job === job && one.period === period);

const instance = { name, now, work, note };
// On Firestore, whoever has a wrong clock is refused unless it insists.
const options = { ignoreClockSkew: true };
const store = rule === "once" ? await open({ ...place, options }) : undefined;
const asks = await RULES[rule](store, instance, place);
let isStopping = false;
process.once("SIGTERM", () => {
  isStopping = true;
});

/** A job of the schedule: its periods begin at other times than those of the others. */
async function follow(job) {
  const shiftMs = (periodMs / jobs) * job;
  const periodAt = (ms) => Math.floor((ms - shiftMs) / periodMs);
  // As schedulers do: what has begun before the start is not asked for, unless the rule asks until it is done.
  let settled = asks.untilDone ? -1 : periodAt(now());
  while (!isStopping) {
    const period = periodAt(now());
    if (period > settled && period > 0) {
      let isDone = false;
      try {
        isDone = await asks.ask(job, period);
      } catch (error) {
        note(`failed:${error.code ?? error.name}`, job, period);
      }
      if (isDone || !asks.untilDone) settled = period;
    }
    await sleep(askMs / speed);
  }
}

await Promise.all(Array.from({ length: jobs }, (_, job) => follow(job)));
await asks.close();
