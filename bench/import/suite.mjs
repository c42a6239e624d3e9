// What it costs to load the package, in a process of its own each time, and how large the addon is.

import { execFileSync } from "node:child_process";
import { statSync } from "node:fs";
import { join, relative } from "node:path";
import { addon, root } from "../../scripts/lib/paths.mjs";
import { builds } from "../lib/built.mjs";
import { printTable, spread } from "../lib/table.mjs";

const WAYS = [
  ["module", 'await import("syncguard")'],
  ["commonjs", 'require("syncguard")'],
];

export async function run({ against, runs = 20 }) {
  console.log(`medians of ${runs} interleaved runs (smallest–largest)\n`);
  const rows = builds(against).map(([name, cwd]) => ({ name, cwd, times: WAYS.map(() => []) }));
  for (let run = 0; run < runs; run += 1) {
    for (const { cwd, times } of rows) {
      for (const [index, way] of WAYS.entries()) times[index].push(load(cwd, way));
    }
  }
  printTable([
    ["", "import, ms", "require, ms", "addon, MiB"],
    ...rows.map(({ name, cwd, times }) => [
      name,
      ...times.map((values) => spread(values, 1)),
      (statSync(join(cwd, relative(root, addon))).size / 1024 / 1024).toFixed(2),
    ]),
  ]);
}

/** Milliseconds of the import alone. */
function load(cwd, [type, code]) {
  const timed = `const t = performance.now(); ${code}; console.log(performance.now() - t);`;
  const args = [`--input-type=${type}`, "--eval", timed];
  return Number(execFileSync(process.execPath, args, { cwd, encoding: "utf8" }));
}
