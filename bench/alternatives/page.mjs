// Writes the page of the benchmarks and its charts into docs, from what runs have measured on a quiet host, and on a busy one:
//
//   npm run bench -- alternatives --json docs/benchmarks/alternatives.json
//   npm run bench -- alternatives --busy --json docs/benchmarks/alternatives-busy.json
//   node bench/alternatives/page.mjs docs/benchmarks/alternatives.json docs/benchmarks/alternatives-busy.json
//
// Without a busy host, its table is left out. Rows that were measured apart (--rows) are in files of their
// own, which are given as well.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { isDeepStrictEqual } from "node:util";
import prettier from "prettier";
import { charts, FOLDER } from "./charts.mjs";
import { contenders } from "./contenders.mjs";
import { inRow } from "./figures.mjs";
import { text, TITLES } from "./text.mjs";

/** The files of the page, by their path in the repository, from reports: `{ file, ...measured }`. */
export async function pageOf(...reports) {
  const runs = runsOf(reports);
  const quiet = together(runs.map(({ quiet }) => quiet));
  const busy = runs[0].busy && together(runs.map(({ busy }) => busy));
  const files = charts(quiet);
  const options = { ...(await prettier.resolveConfig(fileURLToPath(import.meta.url))) };
  const page = await prettier.format(text(quiet, busy, runs), { ...options, parser: "markdown" });
  files.set(`${FOLDER}.md`, page);
  return files;
}

/** Each quiet run, with the busy one of the same rows. A page is of all rows and contenders. */
function runsOf(reports) {
  const runs = reports.filter(({ busy }) => !busy).map((quiet) => ({ quiet }));
  if (runs.length === 0) throw new Error("one file at least must be that of a quiet host");
  for (const busy of reports.filter((report) => report.busy)) {
    const run = runs.find(({ quiet }) => isDeepStrictEqual(rowsOf(quiet), rowsOf(busy)));
    if (run === undefined) throw new Error("no quiet host has the rows of a busy one");
    for (const what of ["machine", "versions", "runs", "seconds", "locks"]) {
      if (!isDeepStrictEqual(run.quiet[what], busy[what]))
        throw new Error(`the two runs differ in ${what}`);
    }
    run.busy = busy;
  }
  if (runs.some(({ quiet }) => !isDeepStrictEqual(quiet.versions, runs[0].quiet.versions)))
    throw new Error("the rows are of different versions");
  const isBusy = reports.some(({ busy }) => busy);
  if (isBusy && runs.some(({ busy }) => busy === undefined))
    throw new Error("not all was measured on a busy host");
  const all = Object.keys(contenders).length;
  for (const row of Object.keys(TITLES)) {
    const of = runs.filter(({ quiet }) => quiet.samples[row] !== undefined);
    const missing = of.length === 0 || (row === "pairs" && inRow(of[0].quiet, row).length < all);
    if (missing) throw new Error(`not all of ${row} was measured`);
    if (of.length > 1) throw new Error(`${row} was measured twice`);
  }
  return runs;
}

/** The rows of several reports as those of the first. */
const together = (reports) => ({
  ...reports[0],
  samples: Object.assign({}, ...reports.map(({ samples }) => samples)),
});

const rowsOf = ({ samples }) => Object.keys(samples).sort();

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
  const reports = files.map((path) => ({
    file: basename(path),
    ...JSON.parse(readFileSync(path, "utf8")),
  }));
  await writePage(root, ...reports);
}
