// Tables of what was measured.

import { contenders, storeOf } from "./contenders.mjs";
import { figure, inRow, VARIED } from "./figures.mjs";
import { STORES } from "./stores.mjs";

/** Figures of a store, with a column for each level of each `[title, cell]`; `cell` writes one. */
export function levelTable(report, row, store, columns, levels) {
  const lines = inRow(report, row, store).map((id) => [
    nameOf(id),
    ...columns.flatMap(([, cell]) => levels.map((level) => cell(id, level))),
  ]);
  const headings = columns.flatMap(([title]) =>
    levels.map((level, place) => (place === 0 ? `${title}: ${level}` : `${level}`)),
  );
  return table([VARIED[row], ...headings], lines);
}

/** A line for each contender of a row; columns are `[title, field, format]`, with the level in the format if the row varies it. */
export function rowTable(report, row, columns) {
  const headings = columns.map(([heading]) => heading);
  const lines = inRow(report, row).map((id) => [
    nameIn(id),
    ...columns.map(([, field, format]) => shown(report, row, id, field, format?.level, format)),
  ]);
  return table([row in VARIED ? VARIED[row] : "", ...headings], lines);
}

/** A line for each contender, with figures of several rows: columns are `[title, row, field, level, format]`. */
export function busyTable(report, columns) {
  const lines = inRow(report, "pairs").map((id) => [
    nameIn(id),
    ...columns.map(([, row, field, level, format]) =>
      inRow(report, row).includes(id) ? shown(report, row, id, field, level, format) : "–",
    ),
  ]);
  return table(["", ...columns.map(([title]) => title)], lines);
}

/** What each contender lacks, and how it was set up: the columns are texts. */
export function contenderTable(ids) {
  const lines = ids.map((id) => [
    nameIn(id),
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

/** With its store. */
const nameIn = (id) => `${STORES[storeOf(id)]}: ${nameOf(id)}`;

function table(heading, lines, others = "---:") {
  const row = (cells) => `| ${cells.join(" | ")} |`;
  const rule = heading.map((_, column) => (column === 0 ? "---" : others));
  return [row(heading), row(rule), ...lines.map(row)].join("\n");
}
