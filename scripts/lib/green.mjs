// Steps of `npm run check` that need not be run again: what they read is what it was when they passed on this machine.

import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { cache, root } from "./paths.mjs";
import { must } from "./run.mjs";
import { isCargos } from "./sources.mjs";

const FILE = join(cache, "green.json");

/** What is remembered of each step: a clone for each of some branches finds its own. */
const REMEMBERED = 20;

/** All that is in the repository, or would be. */
export const EVERYTHING = () => true;
/** Code and settings of JavaScript and TypeScript; packages are in package-lock.json. */
export const SCRIPTS = (name) => /\.([cm]?[jt]sx?|json)$/.test(name);
/** What cargo reads; crates are in Cargo.lock. */
export const RUST = isCargos;

/** The steps, each of which does nothing while the files that it reads are those of a time when it passed. */
export function unlessGreen(reads, steps, { file = FILE, folder = root } = {}) {
  return steps.map((step) => ({ ...step, task: () => runUnlessGreen(reads, step, file, folder) }));
}

async function runUnlessGreen(reads, step, file, folder) {
  const digest = await digestOf(reads, folder);
  const passed = remembered(file)[step.name] ?? [];
  if (passed.includes(digest)) return "passed before, nothing it reads has changed";
  const note = await step.task();
  // Read anew: other steps end beside this one.
  const all = remembered(file);
  const before = (all[step.name] ?? []).filter((other) => other !== digest);
  all[step.name] = [digest, ...before].slice(0, REMEMBERED);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, JSON.stringify(all));
  return note;
}

function remembered(file) {
  return existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : {};
}

async function digestOf(reads, folder) {
  const list = ["ls-files", "-coz", "--exclude-standard"];
  const { output } = await must("git", list, { quiet: true, cwd: folder });
  const hash = createHash("sha256")
    .update(process.version)
    .update(await rustc());
  for (const name of [...new Set(output.split("\0"))].filter(Boolean).sort()) {
    const path = join(folder, name);
    if (reads(name) && existsSync(path)) hash.update(`\0${name}\0`).update(readFileSync(path));
  }
  return hash.digest("hex");
}

let version;

/** Another compiler has other lints. It is asked once. */
async function rustc() {
  version ??= must("rustc", ["-vV"], { quiet: true });
  return (await version).output;
}
