// npm run mutations [-- NAME…] [--record]: breaks a copy of the library on purpose, in one way at a time, and runs `torture` on
// it: each run must find that something is wrong, and nothing on the copy as it is. All mutations take about an hour. With --record,
// scripts/lib/mutations/found.json says how each was found, and docs/reliability/mutations.md how many were.

import { mkdirSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { dirname, join } from "node:path";
import { install, needCompilers } from "./lib/build.mjs";
import { edited, mutations } from "./lib/mutations.mjs";
import { foundEntry, foundRow, keepFound } from "./lib/mutations/found.mjs";
import { root, target } from "./lib/paths.mjs";
import { recording, today } from "./lib/records.mjs";
import { main, must, run } from "./lib/run.mjs";
import { needServers } from "./lib/servers.mjs";
import { startStore } from "./lib/torture.mjs";

/** How long the runs of one mutation are, in seconds: most show at once. */
const RUNS = [8, 20, 32];
/** Of the unmutated copy. */
const CONTROL = 20;

const folder = join(target, "mutations");
const tree = join(folder, "tree");
const program = join(folder, "target", "torture", "torture");

await main(async () => {
  const { words: names, record, isWanted } = recording(process.argv.slice(2));
  const chosen = mutations.filter(({ name }) => names.length === 0 || names.includes(name));
  const unknown = names.filter((name) => !mutations.some((known) => known.name === name));
  if (unknown.length > 0) throw new Error(`no such mutation: ${unknown.join(", ")}`);
  await install();
  await needCompilers();
  await needServers();
  const originals = await copy();
  const runs = chosen.some(({ test }) => !test);
  if (runs) await build();
  const rows = [];
  const settings = new Map(
    chosen.map(({ store, trouble, test }) => [`${store} ${trouble}`, { store, trouble, test }]),
  );
  for (const setting of settings.values()) {
    rows.push(await tried({ name: "(none)", ...setting }, [CONTROL]));
  }
  for (const one of chosen) {
    apply(one, originals);
    try {
      if (!one.test) await build();
      const result = await tried(one, RUNS);
      rows.push(result);
      if (isWanted) {
        const found = keepFound(one.name, foundEntry(result, today()));
        await record("mutations", "The library", [foundRow(found, one.store)]);
      }
    } finally {
      restore(one, originals);
    }
  }
  console.log("\n| mutation | store | found | after | operations | what was seen |");
  console.log("| --- | --- | --- | ---: | ---: | --- |");
  for (const { name, store, isRed, seconds, operations, seen } of rows) {
    console.log(
      `| ${name} | ${store} | ${isRed ? "yes" : "no"} | ${seconds} s | ${operations} | ${seen} |`,
    );
  }
  const wrong = rows.filter(({ name, isRed }) => isRed === (name === "(none)"));
  for (const { name, store } of wrong) console.log(`WRONG: ${name} on ${store}`);
  return wrong.length === 0 ? 0 : 1;
});

/** Copies the tracked files that are built, and gives their texts. What has not changed keeps its time. */
async function copy() {
  const paths = [
    "Cargo.toml",
    "Cargo.lock",
    "clippy.toml",
    "README.md",
    "docs/postgres.md",
    "crates",
    "verify",
    "examples/rust-axum",
  ];
  const { output } = await must("git", ["ls-files", "-z", ...paths], { quiet: true });
  const originals = new Map();
  for (const name of output.split("\0").filter(Boolean)) {
    const text = readFileSync(join(root, name));
    originals.set(name, text);
    write(name, text);
  }
  const listed = await must("find", [tree, "-type", "f", "-printf", "%P\\n"], { quiet: true });
  for (const name of listed.output.split("\n").filter(Boolean)) {
    if (!originals.has(name)) rmSync(join(tree, name));
  }
  // Cargo takes each folder of `crates` for a crate.
  await must("find", [tree, "-type", "d", "-empty", "-delete"], { quiet: true });
  return originals;
}

function write(name, text) {
  const path = join(tree, name);
  if (existsSync(path) && readFileSync(path).equals(text)) return;
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
}

function apply({ edits }, originals) {
  const texts = new Map();
  for (const edit of edits) {
    const text = texts.get(edit.file) ?? originals.get(edit.file).toString();
    texts.set(edit.file, edited(text, edit));
  }
  for (const [name, text] of texts) write(name, Buffer.from(text));
}

function restore({ edits }, originals) {
  for (const { file } of edits) write(file, originals.get(file));
}

/** Faster than with all optimisation, and quick to build again after a small change. */
async function build() {
  const args = ["build", "--profile", "torture", "--locked", "--package", "torture"];
  const env = {
    CARGO_TARGET_DIR: join(folder, "target"),
    CARGO_INCREMENTAL: "1",
    CARGO_PROFILE_TORTURE_OPT_LEVEL: "1",
    CARGO_BUILD_JOBS: String(availableParallelism()),
  };
  await must("cargo", args, { quiet: true, cwd: tree, env });
}

/** Runs one test of the core: of a suite, or beside the source. */
async function testRun({ suite, name }) {
  const where = suite === "lib" ? ["--lib"] : ["--test", suite];
  const args = ["test", "--locked", "--package", "syncguard", "--all-features", ...where];
  const env = { CARGO_TARGET_DIR: join(folder, "target"), CARGO_INCREMENTAL: "1" };
  const { output } = await run("cargo", [...args, "--", name], { quiet: true, cwd: tree, env });
  const [, verdict, passed, failed] =
    /test result: (\w+)\. (\d+) passed; (\d+) failed/.exec(output) ?? [];
  // Neither what cannot be built nor what runs no test is an answer.
  if (!verdict || Number(passed) + Number(failed) !== 1) throw new Error(output);
  return { isRed: verdict === "FAILED", seen: name };
}

/** Runs until one is red. Each has a server of its own, so that nothing is left of the one before. */
async function tried({ name, store, breaks, trouble, test }, runs) {
  const result = { name, store, breaks, test, isRed: false, seconds: 0, operations: 0, seen: "" };
  if (test) return { ...result, ...(await testRun(test)) };
  for (const [index, seconds] of runs.entries()) {
    const { url, stop } = await startStore(store);
    try {
      const seed = String(index + 1);
      const args = ["run", url, String(seconds), seed, ...trouble];
      const { code, output } = await run(program, args, { quiet: true });
      result.isRed = code !== 0;
      result.seconds += seconds;
      result.operations += Number(/: (\d+) operations/.exec(output)?.[1] ?? 0);
      result.seen = what(output);
    } finally {
      await stop();
    }
    if (result.isRed) break;
  }
  console.log(`${result.isRed ? "red  " : "green"} ${name} (${store}): ${result.seen}`);
  return result;
}

/** The first thing that was wrong, in a few words. */
function what(output) {
  const [, call, outcome] =
    /no order explains Operation \{.*? call: (\w+).*? outcome: (\w+)/.exec(output) ?? [];
  const slow = /granted \d+ ms after the release of the lock before/.exec(output)?.[0];
  const last = output.trimEnd().split("\n").at(-1) ?? "";
  return call ? `${call} → ${outcome}` : (slow ?? last);
}
