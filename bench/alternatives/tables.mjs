// Tables of what was measured.

import { contenders, storeOf } from "./contenders.mjs";
import { figure, inRow, levels, VARIED } from "./figures.mjs";
import { STORES } from "./stores.mjs";

/** Figures of a store, with a column for each level; `cell` writes one. */
export function levelTable(report, row, store, title, cell) {
  const all = levels(report, row);
  const lines = inRow(report, row, store).map((id) => [
    nameOf(id),
    ...all.map((level) => cell(id, level)),
  ]);
  return table([`${VARIED[row]}: ${title}`, ...all.map(String)], lines);
}

/** A line for each contender of a row, at one level if the row varies it; columns are `[title, field, format]`. */
export function rowTable(report, row, columns, level) {
  const title = level === undefined ? "" : `${level} ${VARIED[row]}`;
  const headings = columns.map(([heading]) => heading);
  const lines = inRow(report, row).map((id) => [
    `${STORES[storeOf(id)]}: ${nameOf(id)}`,
    ...columns.map(([, field, format]) => shown(report, row, id, field, level, format)),
  ]);
  return table([title, ...headings], lines);
}

/** What each contender lacks, and how it was set up: the columns are texts. */
export function contenderTable(ids) {
  const lines = ids.map((id) => [
    `${STORES[storeOf(id)]}: ${nameOf(id)}`,
    contenders[id].lacks === "" ? "–" : contenders[id].lacks,
    contenders[id].settings,
  ]);
  return table(["", "what it does not do", "settings"], lines, "---");
}

/** The median. The charts show its spread. */
export function shown(report, row, id, field, level, { factor = 1, unit = "", digits = 0 } = {}) {
  const { value } = figure(report, row, id, field, level);
  const text = (value * factor).toLocaleString("en", {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
  return `${text}${unit}`;
}

const nameOf = (id) => (id.endsWith("/syncguard") ? "**syncguard**" : contenders[id].name);

function table(heading, lines, others = "---:") {
  const row = (cells) => `| ${cells.join(" | ")} |`;
  const rule = heading.map((_, column) => (column === 0 ? "---" : others));
  return [row(heading), row(rule), ...lines.map(row)].join("\n");
}
