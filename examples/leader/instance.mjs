// One of the instances: it campaigns until it leads, and leads until it is told to stop.

import { appendFile, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { lead } from "syncguard";

const [name, folder] = process.argv.slice(2);
// Stands for a row of a database: the last round, and the fence under which it was written.
const file = join(folder, "round.json");

const stopping = new AbortController();
process.once("SIGTERM", () => stopping.abort());

await lead("scheduler", schedule, {
  // So soon does another lead, and the tolerance of a second later, after a leader has died.
  ttlMs: 2_000,
  owner: name,
  signal: stopping.signal,
  onError: (error) => console.log(error.message),
  onLost: () => console.log("is not the leader any more"),
});
console.log("stopped");

async function schedule({ fence, signal }) {
  console.log(`leads, under fence ${fence}`);
  for (;;) {
    await round(fence);
    await sleep(200, undefined, { signal }); // ends when the lock is lost, or the instance told to stop
  }
}

async function round(fence) {
  const last = await lastRound();
  if (fence < last.fence) throw new Error("a later leader has written already");
  const number = last.number + 1;
  await writeFile(`${file}.${name}`, JSON.stringify({ number, fence }));
  await rename(`${file}.${name}`, file);
  await appendFile(join(folder, "rounds"), `${fence}\n`);
  console.log(`round ${number}`);
}

async function lastRound() {
  try {
    return JSON.parse(await readFile(file, "utf8"));
  } catch (error) {
    if (error.code !== "ENOENT") throw error;
    return { number: 0, fence: "" };
  }
}
