// What the process of a contender is asked to do whose pairs are measured.

import { setTimeout as sleep } from "node:timers/promises";
import { samplePairs } from "./pair.mjs";

/** The tasks of `open[who](options)` of a module of contenders. */
export async function tasksOf(contenders, who, options) {
  const contender = await (await import(contenders)).open[who](options);
  return {
    pairs: (sample) => samplePairs(contender, sample),

    /** Milliseconds of CPU of a process that does nothing. */
    async idle({ ms }) {
      const before = process.cpuUsage();
      await sleep(ms);
      const { user, system } = process.cpuUsage(before);
      return (user + system) / 1_000;
    },
  };
}
