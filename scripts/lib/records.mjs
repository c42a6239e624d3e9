// Reports of runs: rows in the tables of docs/reliability. A table stands under a heading, and its first line names the columns.
// What stands before the column `date` says what was run; a later run of the same takes the place of that row.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./paths.mjs";

/** The words of a command without `--record`, whether that was among them, and what keeps its rows: then in a page, otherwise nowhere. */
export function recording(words) {
  const others = words.filter((word) => word !== "--record");
  const isWanted = others.length < words.length;
  return { words: others, isWanted, record: isWanted ? record : () => Promise.resolve() };
}

/** The date that rows of today have. */
export function today() {
  return new Date().toISOString().slice(0, 10);
}

/** Puts rows of today into the table under `heading` of docs/reliability/`page`.md: objects, by the names of the columns. */
export async function record(page, heading, rows) {
  const path = join(root, "docs", "reliability", `${page}.md`);
  const dated = rows.map((row) => ({ ...row, date: today() }));
  const text = withRows(readFileSync(path, "utf8"), heading, dated);
  // Commands that keep reports install their packages themselves, and so begin without them.
  const { default: prettier } = await import("prettier");
  const options = { ...(await prettier.resolveConfig(path)), parser: "markdown" };
  writeFileSync(path, await prettier.format(text, options));
}

/** `text` with these rows in the table under that heading. */
export function withRows(text, heading, rows) {
  const lines = text.split("\n");
  const { columns, first, end } = tableUnder(lines, heading);
  const run = columns.slice(0, columns.indexOf("date"));
  const keyOf = (cells) => JSON.stringify(cells.slice(0, run.length));
  const kept = new Map(
    lines
      .slice(first, end)
      .map(cellsOf)
      .map((cells) => [keyOf(cells), cells]),
  );
  for (const row of rows) {
    const unknown = Object.keys(row).filter((name) => !columns.includes(name));
    if (unknown.length > 0) throw new Error(`"${heading}" has no column ${unknown.join(", ")}`);
    const before = kept.get(keyOf(run.map((name) => cellOf(row, name))));
    const cells = columns.map((name, at) => cellOf(row, name, before?.[at]));
    kept.set(keyOf(cells), cells);
  }
  const written = [...kept.values()].map((cells) => `| ${cells.join(" | ")} |`);
  return [...lines.slice(0, first), ...written, ...lines.slice(end)].join("\n");
}

/** The columns of the table under a heading, and its lines: from `first` to before `end`. */
function tableUnder(lines, heading) {
  const start = lines.findIndex((line) => line.replace(/^#+ /, "") === heading && line !== heading);
  if (start === -1) throw new Error(`there is no heading "${heading}"`);
  const next = lines.findIndex((line, at) => at > start && /^#+ /.test(line));
  const isOfTable = (line, at) => at > start && line.startsWith("|");
  const head = lines.findIndex(isOfTable);
  if (head === -1 || (next !== -1 && head > next)) throw new Error(`no table under "${heading}"`);
  const columns = cellsOf(lines[head]);
  if (!columns.includes("date")) throw new Error(`the table under "${heading}" has no dates`);
  const first = head + 2;
  const past = lines.slice(first).findIndex((line) => !line.startsWith("|"));
  return { columns, first, end: past === -1 ? lines.length : first + past };
}

/** The cells of a line of a table. */
function cellsOf(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim());
}

/** What the row does not say stays as it was. */
function cellOf(row, name, before) {
  const value = row[name] ?? before;
  if (value === undefined) throw new Error(`the row has no ${name}`);
  const text = typeof value === "number" ? value.toLocaleString("en") : String(value);
  return text.replace(/\s+/g, " ").replace(/(?<!\\)\|/g, "\\|");
}
