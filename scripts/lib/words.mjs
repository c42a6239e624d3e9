// How long the documents for users are. Whoever reads them has some four hours: a page that grows has to lose something else, or leave it
// to the page that it links to.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./paths.mjs";
import { must } from "./run.mjs";

/** In words, as `wc -w` counts them. Prose is what stands outside of tables and code. */
const LIMITS = { page: 3_200, all: 55_000, prose: 35_500 };

const COMMENT = /<!--.*?-->/gs;
const CODE = /^[ \t>]*(```|~~~).*?^[ \t>]*\1[ \t]*$/gms;
const TABLE_ROW = /^[ \t>]*\|.*$/gm;

/** Fails when the pages of docs have more words than they may. Decisions are the project's memory, and do not count. */
export async function checkWords() {
  const { output } = await must("git", ["ls-files", "-z", "--", "docs"], { quiet: true });
  const names = output.split("\0").filter((name) => /^docs\/(?!decisions\/).*\.md$/.test(name));
  const pages = names.map((name) => [name, readFileSync(join(root, name), "utf8")]);
  const { faults, all, prose } = tooLong(new Map(pages), LIMITS);
  if (faults.length > 0) throw new Error(faults.join("\n"));
  return `${all} words, of which ${prose} are prose`;
}

/**
 * What is too long.
 *
 * @param {ReadonlyMap<string, string>} pages their text by their path
 * @param {{ page: number, all: number, prose: number }} limits of each page, of all together, and of the prose of all
 */
export function tooLong(pages, limits) {
  const counted = [...pages].map(([name, text]) => ({ name, words: words(text) }));
  const all = counted.reduce((sum, { words }) => sum + words, 0);
  const prose = [...pages.values()].reduce((sum, text) => sum + words(proseOf(text)), 0);
  const faults = counted
    .filter((page) => page.words > limits.page)
    .map((page) => `${page.name} has ${page.words} words, and may have ${limits.page}`);
  if (all > limits.all) faults.push(`the pages have ${all} words, and may have ${limits.all}`);
  if (prose > limits.prose) {
    faults.push(`the pages have ${prose} words of prose, and may have ${limits.prose}`);
  }
  return { faults, all, prose };
}

function words(text) {
  return text.split(/\s+/).filter(Boolean).length;
}

function proseOf(text) {
  return text.replace(COMMENT, "").replace(CODE, "").replace(TABLE_ROW, "");
}
