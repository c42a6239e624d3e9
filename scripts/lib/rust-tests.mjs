// The tests in Rust: every program that cargo makes of them, run side by side.

import { linkSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { cargoResult } from "./counts.mjs";
import { target } from "./paths.mjs";
import { must, run } from "./run.mjs";
import { isAlive } from "./scratch.mjs";

/** Nothing takes that long, however busy the machine is: a program that does waits for what never comes. */
const LIMIT_MS = 20 * 60_000;

const WHAT = ["--workspace", "--all-features", "--locked"];

/**
 * Builds the tests, and resolves to their programs: `{ name, path, folder }`. They are kept from being built anew by another clone
 * until `remove` is called.
 */
export async function buildRustTests() {
  const args = ["test", ...WHAT, "--no-run", "--message-format=json-render-diagnostics"];
  const { output } = await must("cargo", args, { quiet: true });
  const kept = keep();
  const programs = output
    .split("\n")
    .filter((line) => line.startsWith("{"))
    .map((line) => JSON.parse(line))
    .filter(
      ({ reason, profile, executable }) =>
        reason === "compiler-artifact" && profile.test && executable,
    )
    .map((artifact) => {
      const path = join(kept, basename(artifact.executable));
      linkSync(artifact.executable, path);
      const folder = dirname(artifact.manifest_path);
      return { name: nameOf(basename(folder), artifact.target), path, folder };
    });
  return { programs, remove: () => rmSync(kept, { recursive: true, force: true }) };
}

/** A folder for this process. Those of processes that were killed are removed. */
function keep() {
  const all = join(target, "tests");
  mkdirSync(all, { recursive: true });
  for (const name of readdirSync(all)) {
    if (!isAlive(Number(name))) rmSync(join(all, name), { recursive: true, force: true });
  }
  const folder = join(all, `${process.pid}`);
  mkdirSync(folder);
  return folder;
}

/** As they are called in reports: `syncguard` for the tests in a library, `syncguard/redis` for a suite beside it. */
function nameOf(crate, { kind, name }) {
  return kind.includes("test")
    ? `${crate}/${name}`
    : kind.includes("bin")
      ? `${crate} (${name})`
      : crate;
}

/** Runs programs, `atOnce` at a time, and resolves to their results in the order in which they ended. */
export async function runRustTests(programs, { atOnce, threads, say, limitMs = LIMIT_MS }) {
  const waiting = programs.values();
  const results = [];
  const runAll = async () => {
    for (const program of waiting) {
      const start = Date.now();
      const result = await runProgram(program, [`--test-threads=${threads}`], limitMs);
      const seconds = ((Date.now() - start) / 1000).toFixed(1);
      say(
        `${program.name}: ${result.passed} passed, ${result.failures.length} failed (${seconds} s)`,
      );
      results.push(result);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, runAll));
  return results;
}

/** Runs one test of a program, and nothing beside it. */
export function runRustTest({ program, name }) {
  return runProgram(program, ["--exact", name, "--test-threads=1"]);
}

/** The samples in the documentation: cargo compiles and runs them itself. */
export async function runRustSamples() {
  const { code, output } = await run("cargo", ["test", ...WHAT, "--doc"], { quiet: true });
  return { ...cargoResult({ code, output }, { name: "samples in Rust" }), output };
}

async function runProgram(program, args, limitMs = LIMIT_MS) {
  const surroundings = surroundingsOf(program);
  const { code, output, isLate } = await run(program.path, args, { ...surroundings, limitMs });
  const result = { ...cargoResult({ code, output }, program), output };
  if (!isLate) return result;
  const list = await run(program.path, [...args, "--list"], surroundings);
  const names = [...list.output.matchAll(/^(.+): test$/gm)].map(([, name]) => name);
  const missing = names.filter((name) => !output.includes(`test ${name} `));
  const why = `${program.name} was not over after ${limitMs / 1000} s. Without a result:`;
  return { ...result, broken: [why, ...missing].join("\n") };
}

/** What cargo gives a test. */
function surroundingsOf({ folder }) {
  return { quiet: true, cwd: folder, env: { CARGO_MANIFEST_DIR: folder } };
}
