// Writes the page of the benchmarks and its charts into docs, from what a run has measured:
//
//   npm run bench -- alternatives --json docs/benchmarks/alternatives.json
//   node bench/alternatives/page.mjs docs/benchmarks/alternatives.json

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import prettier from "prettier";
import { charts, FOLDER } from "./charts.mjs";
import { text } from "./text.mjs";

/** The files of the page, by their path in the repository. */
export async function pageOf(report) {
  const files = charts(report);
  const markdown = text(report);
  const options = { ...(await prettier.resolveConfig(fileURLToPath(import.meta.url))) };
  files.set(`${FOLDER}.md`, await prettier.format(markdown, { ...options, parser: "markdown" }));
  return files;
}

/** Writes them into the folder `root`. */
export async function writePage(report, root) {
  mkdirSync(join(root, FOLDER), { recursive: true });
  for (const [path, content] of await pageOf(report)) writeFileSync(join(root, path), content);
}

const path = fileURLToPath(import.meta.url);
if (process.argv[1] !== undefined && resolve(process.argv[1]) === path) {
  const file = process.argv[2];
  if (file === undefined) throw new Error("which file has the samples?");
  const root = fileURLToPath(new URL("../..", import.meta.url));
  await writePage(JSON.parse(readFileSync(file, "utf8")), root);
}
