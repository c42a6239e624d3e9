// A process that leads whenever it may: node member.mjs NAME PLACE FILE TTL_MS
// What it sees goes to the file, line by line, at the moment when it happens: the process may be killed at any other.

import { openSync, writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { open } from "../../bench/waiting/stores.mjs";
import { nowMs } from "./clock.mjs";

/** From one step of the work to the next. */
const STEP_MS = 5;
/** How long the work goes on at most after it was told to end. */
const SLOWEST_MS = 400;

const [name, place, file, ttlMs] = process.argv.slice(2);
const log = openSync(file, "a");
const note = (event, more = {}) =>
  writeSync(log, `${JSON.stringify({ atMs: nowMs(), member: name, event, ...more })}\n`);

const backend = await open(JSON.parse(place));
process.once("SIGTERM", async () => {
  await backend.releaseAll();
  await over;
  await backend.close();
  process.disconnect();
});

const over = backend.lead(
  "leader",
  async ({ term, signal }) => {
    note("start", { term });
    process.send({ event: "start", term });
    signal.addEventListener("abort", () => note("told", { term }));
    while (!signal.aborted) {
      note("step", { term });
      await sleep(STEP_MS);
    }
    // Not all work can end at once.
    await sleep(Math.random() * SLOWEST_MS);
    note("end", { term });
  },
  {
    ttlMs: Number(ttlMs),
    owner: name,
    onLost: () => undefined,
    onError: (error) => note("error", { message: String(error) }),
  },
);
process.send({ event: "ready" });
