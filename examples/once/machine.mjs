// One of the machines: each of them has the same jobs in its schedules.

import { appendFile, readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import cron from "node-cron";
import { createSqliteBackend } from "syncguard/sqlite";
import { cronOnce } from "./croner.mjs";
import { cronHandler } from "./http.mjs";
import { startNest } from "./nest.mjs";
import { runCoordinator, scheduleOnce } from "./node-cron.mjs";

const [name, folder] = process.argv.slice(2);
const SECOND_MS = 1_000;
const EVERY_SECOND = "* * * * * *";

// On several machines, a backend on a server: createRedisBackend(process.env.REDIS_URL).
const backend = createSqliteBackend(join(folder, "locks.db"));
const jobs = ["node-cron", "coordinated", "croner", "nest", "http"];

/** A job that takes less time than the machines' clocks differ. */
const job = (of) => async (handle, due) => {
  await sleep(20);
  await appendFile(join(folder, "runs"), `${of} ${Number(due)}\n`);
  console.log(`${of}: did ${Number(due)}${handle.fence ? ` under fence ${handle.fence}` : ""}`);
};

const one = scheduleOnce(backend, "node-cron", EVERY_SECOND, job("node-cron"));
cron.setRunCoordinator(runCoordinator(backend));
const options = { name: "coordinated", distributed: true };
const coordinated = job("coordinated");
const two = cron.schedule(EVERY_SECOND, ({ date }) => coordinated({}, date), options);
const three = cronOnce(backend, "croner", EVERY_SECOND, SECOND_MS, job("croner"));
const app = await startNest(backend, "nest", EVERY_SECOND, SECOND_MS, job("nest"));
const handler = cronHandler(backend, "http", SECOND_MS, job("http"), "");
const caller = cron.schedule(EVERY_SECOND, () => handler(new Request("http://localhost/cron")));

/** Until each job has run so often somewhere. */
async function until(runs) {
  for (;;) {
    const text = await readFile(join(folder, "runs"), "utf8").catch(() => "");
    const of = (name) => text.split("\n").filter((line) => line.startsWith(`${name} `)).length;
    if (jobs.every((name) => of(name) >= runs)) return;
    await sleep(100);
  }
}

await Promise.race([
  until(Number(process.env.RUNS ?? 3)),
  new Promise((resolve) => process.once("SIGTERM", resolve)),
]);
three.stop();
await Promise.all([one.destroy(), two.destroy(), caller.destroy(), app.close()]);
await backend.releaseAll();
await backend.close();
console.log(`${name} is done`);
process.exit();
