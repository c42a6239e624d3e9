// Steps of `npm run check` that need not be run again: what they read is what it was when they passed on this machine.

import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { cache, root } from "./paths.mjs";
import { must } from "./run.mjs";

/** What is remembered of each step: a clone for each of some branches finds its own. */
const REMEMBERED = 20;

/** All that is in the repository, or would be. */
export const EVERYTHING = () => true;
/** Code and settings of JavaScript and TypeScript; packages are in package-lock.json. */
export const SCRIPTS = (name) => /\.([cm]?[jt]sx?|json)$/.test(name);

/** The steps, each of which does nothing while the files that it reads are those of a time when it passed. */
export function unlessGreen(reads, steps) {
  return steps.map((step) => ({ ...step, task: () => runUnlessGreen(reads, step) }));
}

async function runUnlessGreen(reads, step) {
  const digest = await digestOf(reads);
  const passed = remembered()[step.name] ?? [];
  if (passed.includes(digest)) return "passed before, nothing it reads has changed";
  const note = await step.task();
  // Read anew: other steps end beside this one.
  const all = remembered();
  const before = (all[step.name] ?? []).filter((other) => other !== digest);
  all[step.name] = [digest, ...before].slice(0, REMEMBERED);
  mkdirSync(cache, { recursive: true });
  writeFileSync(file, JSON.stringify(all));
  return note;
}

const file = join(cache, "green.json");

function remembered() {
  return existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : {};
}

async function digestOf(reads) {
  const { output } = await must("git", ["ls-files", "-coz", "--exclude-standard"], { quiet: true });
  const hash = createHash("sha256").update(process.version);
  for (const name of [...new Set(output.split("\0"))].filter(Boolean).sort()) {
    const path = join(root, name);
    if (reads(name) && existsSync(path)) hash.update(`\0${name}\0`).update(readFileSync(path));
  }
  return hash.digest("hex");
}
