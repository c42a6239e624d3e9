// Rebuilds the catalogue a few times, or reads it again and again: as its name says. The catalogue is in several files, so that who reads
// it during a rebuild would see half of it.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { lock } from "syncguard";
import { PARTS } from "./parts.mjs";

const BUILDS = 5;
const [name, folder] = process.argv.slice(2);
const stopping = new AbortController();
process.once("SIGTERM", () => stopping.abort());

const options = {
  key: "catalogue",
  // So soon, and a second later, a rebuild goes on when a reader has died.
  ttlMs: 2_000,
  autoExtend: true,
  // SIGTERM ends the waiting. What has begun is finished.
  acquisition: { timeoutMs: 30_000, maxRetries: Infinity, signal: stopping.signal },
};

if (name === "rebuilder") await rebuildAll();
else await readAll();
console.log("done");

async function rebuildAll() {
  for (let build = 1; build <= BUILDS && !stopping.signal.aborted; build += 1) {
    await sleep(100);
    const asked = Date.now();
    await unlessStopped(
      lock(async (held) => {
        console.log(
          `rebuilds as ${build} under fence ${held.fence}, after ${Date.now() - asked} ms`,
        );
        await rebuild(build, held);
      }, options),
    );
  }
}

async function rebuild(build, { fence, assertHeld }) {
  for (const part of PARTS) {
    assertHeld(); // before each write
    writeFileSync(join(folder, part), JSON.stringify({ build, fence }));
    await sleep(20);
  }
}

async function readAll() {
  while (!stopping.signal.aborted) {
    // Beside all others who read.
    await unlessStopped(lock(read, { ...options, mode: "shared" }));
  }
}

async function read({ assertHeld }) {
  const builds = new Set();
  for (const part of PARTS) {
    builds.add(JSON.parse(readFileSync(join(folder, part), "utf8")).build);
    await sleep(10);
  }
  // Before what was read is used: until here, nobody has written.
  assertHeld();
  console.log(builds.size === 1 ? `reads ${[...builds][0]}` : `torn: ${[...builds].join(" and ")}`);
}

async function unlessStopped(work) {
  try {
    await work;
  } catch (error) {
    if (!stopping.signal.aborted) throw error;
  }
}
