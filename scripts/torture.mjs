// npm run torture [-- BACKENDS SECONDS SEED]: several processes work on each store, some are stopped and killed, and
// what they saw is checked. The seed decides everything but the machine's own timing.
// npm run torture -- matrix [BACKENDS SECONDS SEED ROWS…]: the same while stores, networks, clocks and disks fail
// (docs/reliability.md, "The fault matrix").
// npm run torture -- lead [BACKENDS SECONDS SEED]: several processes want to lead; the leader is killed, stopped and told to end
// (docs/reliability.md, "Leaders").
// npm run torture -- once [BACKENDS JOBS PERIODS]: instances whose clocks differ do jobs once per period, while some are killed
// (docs/reliability.md, "Once per period").
// npm run torture -- simulation [FROM..TO], and model: the tests of verify/simulation, from these seeds, and of verify/model.
// npm run torture -- fuzz TARGET [SECONDS]: random inputs, guided by coverage; needs cargo-fuzz.
// With --record, a row of docs/reliability says what came of each.

import { join } from "node:path";
import { build as buildPackage, buildEmulator, install, needCompilers } from "./lib/build.mjs";
import { target } from "./lib/paths.mjs";
import { recording } from "./lib/records.mjs";
import { fuzzRow, historyRow, leaderRow, matrixRows, periodRow, testRow } from "./lib/reports.mjs";
import { exitOnSignals, main, must, run } from "./lib/run.mjs";
import { needServers } from "./lib/servers.mjs";
import { leaders } from "../verify/leader/scene.mjs";
import { periods } from "../verify/once/scene.mjs";
import { startStore, storeNames } from "./lib/torture.mjs";

/** All stores; the matrix has rows for each. */
const ALL = "redis,redis-cluster,postgres,sqlite,firestore";

/** What the first word means; without one of these, `runs`. */
const KINDS = { matrix, lead, once, simulation, model, fuzz };

await main(async () => {
  const { words, record, isWanted } = recording(process.argv.slice(2));
  exitOnSignals();
  const kind = KINDS[words[0]];
  // The page has a row for each store, about all rows of the matrix.
  if (isWanted && kind === matrix && words.length > 4) {
    throw new Error("--record keeps whole runs of the matrix: name no rows");
  }
  return await (kind === undefined ? runs(words, record) : kind(words.slice(1), record));
});

async function matrix([names = ALL, seconds = "15", seed = someSeed(), ...rows], record) {
  const program = await build();
  const { code, output } = await run(program, ["matrix", names, seconds, seed, ...rows]);
  const how = { seed, seconds: Number(seconds) };
  const stores = matrixRows(output).map((row) => ({ ...row, ...how }));
  await record("matrix", "What came of it", stores);
  return code;
}

async function lead(words, record) {
  return await scene(leaders, words, async ({ which, settings, found }) => {
    const { seed, seconds } = settings;
    await record("runs", "Leaders", [{ store: which.store, seed, seconds, ...leaderRow(found) }]);
  });
}

async function once(words, record) {
  return await scene(periods, words, async ({ which: { rule, store }, found }) => {
    await record("runs", "Once per period", [{ rule, store, ...periodRow(found.figures) }]);
  });
}

async function scene(scene, words, told) {
  await buildPackage();
  await buildEmulator();
  await needServers();
  // It needs packages, which are there only now.
  const { play } = await import("../verify/frame/play.mjs");
  return await play(scene, words, told);
}

async function simulation([seeds = "0..10000"], record) {
  const args = ["--package", "syncguard", "--lib", "--all-features", "simulation"];
  const env = { SYNCGUARD_SIMULATION_SEEDS: seeds };
  return await tested("Simulation", { run: `seeds ${seeds}` }, args, env, record);
}

async function model(_, record) {
  return await tested("The model", { run: "all worlds" }, ["--package", "model"], {}, record);
}

/** Runs tests of cargo, and records how many have passed. */
async function tested(heading, what, args, env, record) {
  await install();
  await needCompilers();
  const started = Date.now();
  const { code, output } = await run("cargo", ["test", "--locked", ...args], { env });
  const seconds = Math.round((Date.now() - started) / 1_000);
  await record("runs", heading, [{ ...what, seconds, ...testRow(output) }]);
  return code;
}

async function fuzz([target, seconds = "180"], record) {
  if (target === undefined) throw new Error("which target? docs/reliability/runs.md lists them");
  const limits = ["-timeout=10", `-max_total_time=${seconds}`];
  await install();
  const args = ["fuzz", "run", "--fuzz-dir", "verify/fuzz", "-s", "none", target, "--", ...limits];
  const { code, output } = await run("cargo", args, { env: { RUSTC_BOOTSTRAP: "1" } });
  const row = fuzzRow(output);
  if (row !== undefined) await record("runs", "Fuzzing", [{ target: `\`${target}\``, ...row }]);
  return code;
}

async function runs([names = ALL, seconds = "60", seed = someSeed()], record) {
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
      const { code, output } = await run(program, ["run", url, seconds, seed, "stop", "kill"]);
      const row = historyRow(output);
      const how = { store: name, seed, seconds: Number(seconds) };
      if (row !== undefined) await record("runs", "Histories", [{ ...how, ...row }]);
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
