// npm run torture [-- BACKENDS SECONDS SEED]: several processes work on each store, some are stopped and killed, and
// what they saw is checked. The seed decides everything but the machine's own timing.
// npm run torture -- matrix [BACKENDS SECONDS SEED ROWS…]: the same while stores, networks, clocks and disks fail
// (docs/reliability.md, "The fault matrix").
// npm run torture -- lead [BACKENDS SECONDS SEED]: several processes want to lead; the leader is killed, stopped and told to end
// (docs/reliability.md, "Leaders").
// npm run torture -- once [BACKENDS JOBS PERIODS]: instances whose clocks differ do jobs once per period, while some are killed
// (docs/reliability.md, "Once per period").

import { join } from "node:path";
import { build as buildPackage, buildEmulator, install, needCompilers } from "./lib/build.mjs";
import { target } from "./lib/paths.mjs";
import { exitOnSignals, main, must, run } from "./lib/run.mjs";
import { needServers } from "./lib/servers.mjs";
import { runLeaders } from "../verify/leader/run.mjs";
import { runPeriods } from "../verify/once/run.mjs";
import { startStore, storeNames } from "./lib/torture.mjs";

/** All stores; the matrix has rows for each. */
const ALL = "redis,redis-cluster,postgres,sqlite,firestore";

await main(async () => {
  const words = process.argv.slice(2);
  exitOnSignals();
  if (words[0] === "matrix") return await matrix(words.slice(1));
  if (words[0] === "lead") return await leaders(words.slice(1));
  if (words[0] === "once") return await periods(words.slice(1));
  return await runs(words);
});

async function matrix([names = ALL, seconds = "15", seed = someSeed(), ...rows]) {
  const program = await build();
  return (await run(program, ["matrix", names, seconds, seed, ...rows])).code;
}

async function leaders(words) {
  await buildPackage();
  await needServers();
  return await runLeaders(words);
}

async function periods(words) {
  await buildPackage();
  await buildEmulator();
  await needServers();
  return await runPeriods(words);
}

async function runs([names = ALL, seconds = "60", seed = someSeed()]) {
  for (const name of names.split(",")) {
    if (!storeNames.includes(name)) {
      throw new Error(`no such store: ${name} (${storeNames.join(", ")})`);
    }
  }
  const program = await build();
  let worst = 0;
  for (const name of names.split(",")) {
    const { url, stop } = await startStore(name);
    try {
      console.log(`\n${name}, ${seconds} s`);
      const { code } = await run(program, ["run", url, seconds, seed, "stop", "kill"]);
      worst = Math.max(worst, code);
    } finally {
      await stop();
    }
  }
  return worst;
}

/** The program. */
async function build() {
  await install();
  await needCompilers();
  await needServers();
  await must("cargo", ["build", "--profile", "torture", "--locked", "--package", "torture"], {
    quiet: true,
  });
  return join(target, "torture", "torture");
}

function someSeed() {
  return String(Date.now() % 1_000_000);
}
