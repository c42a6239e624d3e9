// A process that leads whenever it may, and notes what it sees.

import { setTimeout as sleep } from "node:timers/promises";
import { open } from "../../bench/waiting/stores.mjs";
import { noteTo } from "../frame/notes.mjs";

/** From one step of the work to the next. */
const STEP_MS = 5;
/** How long the work goes on at most after it was told to end. */
const SLOWEST_MS = 400;

const { name, place, file, ttlMs } = JSON.parse(process.argv[2]);
const note = noteTo(file, name);

const backend = await open(place);
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
    ttlMs,
    owner: name,
    onLost: () => undefined,
    onError: (error) => note("error", { message: String(error) }),
  },
);
process.send({ event: "ready" });
