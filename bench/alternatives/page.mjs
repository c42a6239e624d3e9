// Writes the page of the benchmarks and its charts into docs, from what runs have measured on a quiet host, and on a busy one:
//
//   npm run bench -- alternatives --json docs/benchmarks/alternatives.json
//   npm run bench -- alternatives --busy --json docs/benchmarks/alternatives-busy.json
//   node bench/alternatives/page.mjs docs/benchmarks/alternatives.json docs/benchmarks/alternatives-busy.json
//
// Without the second file, the page is that of a quiet host alone.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { isDeepStrictEqual } from "node:util";
import prettier from "prettier";
import { charts, FOLDER } from "./charts.mjs";
import { contenders } from "./contenders.mjs";
import { inRow } from "./figures.mjs";
import { text, TITLES } from "./text.mjs";

/** The files of the page, by their path in the repository. */
export async function pageOf(quiet, busy) {
  checkReports(quiet, busy);
  const files = charts(quiet);
  const markdown = text(quiet, busy);
  const options = { ...(await prettier.resolveConfig(fileURLToPath(import.meta.url))) };
  files.set(`${FOLDER}.md`, await prettier.format(markdown, { ...options, parser: "markdown" }));
  return files;
}

/** A page is of all rows and contenders, and of one machine. */
function checkReports(quiet, busy) {
  if (quiet.busy) throw new Error("the first file is that of a quiet host");
  const ids = Object.keys(contenders);
  for (const report of [quiet, busy ?? quiet]) {
    for (const row of Object.keys(TITLES)) {
      const missing =
        report.samples[row] === undefined ||
        (row === "pairs" && inRow(report, row).length < ids.length);
      if (missing) throw new Error(`not all of ${row} was measured`);
    }
  }
  if (busy === undefined) return;
  if (!busy.busy) throw new Error("the second file is that of a busy host");
  for (const what of ["machine", "versions", "runs", "seconds", "locks"]) {
    if (!isDeepStrictEqual(quiet[what], busy[what]))
      throw new Error(`the two runs differ in ${what}`);
  }
}

/** Writes them into the folder `root`. */
export async function writePage(root, ...reports) {
  mkdirSync(join(root, FOLDER), { recursive: true });
  for (const [path, content] of await pageOf(...reports)) writeFileSync(join(root, path), content);
}

const path = fileURLToPath(import.meta.url);
if (process.argv[1] !== undefined && resolve(process.argv[1]) === path) {
  const files = process.argv.slice(2);
  if (files.length === 0) throw new Error("which files have the samples?");
  const root = fileURLToPath(new URL("../..", import.meta.url));
  await writePage(root, ...files.map((file) => JSON.parse(readFileSync(file, "utf8"))));
}
