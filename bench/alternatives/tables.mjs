// Tables of what was measured. On the page, those of the busy host stand below those of the quiet one.

import { contenders, storeOf } from "./contenders.mjs";
import { figure, inRow, levels, VARIED } from "./figures.mjs";
import { STORES } from "./stores.mjs";

const LACKS = "what it does not do";

/** Figures of a store, with a column for each level; `cell` writes one. Only the first table of a store says what is missing. */
export function levelTable(report, row, store, title, cell, isFirst = false) {
  const all = levels(report, row);
  const lines = inRow(report, row, store).map((id) => [
    nameOf(id),
    ...all.map((level) => cell(id, level)),
    ...(isFirst ? missing(report, lacks(id)) : []),
  ]);
  const heading = [onHost(report, `${VARIED[row]}: ${title}`), ...all.map(String)];
  return table([...heading, ...(isFirst ? missing(report, LACKS) : [])], lines);
}

/** A line for each contender of a row, at one level if the row varies it; columns are `[title, field, format]`. */
export function rowTable(report, row, columns, level) {
  const title = level === undefined ? "" : `${level} ${VARIED[row]}`;
  const headings = columns.map(([heading]) => heading);
  const lines = inRow(report, row).map((id) => [
    `${STORES[storeOf(id)]}: ${nameOf(id)}`,
    ...columns.map(([, field, format]) => shown(report, row, id, field, level, format)),
    ...missing(report, lacks(id)),
  ]);
  return table([onHost(report, title), ...headings, ...missing(report, LACKS)], lines);
}

/** The median with its spread. */
export function shown(report, row, id, field, level, { factor = 1, unit = "", digits = 0 } = {}) {
  const { value, low, high } = figure(report, row, id, field, level);
  const [middle, from, to] = [value, low, high].map((each) =>
    (each * factor).toLocaleString("en", {
      minimumFractionDigits: digits,
      maximumFractionDigits: digits,
    }),
  );
  return from === to ? `${middle}${unit}` : `${middle}${unit} (${from}–${to})`;
}

const nameOf = (id) => (id.endsWith("/syncguard") ? "**syncguard**" : contenders[id].name);
const lacks = (id) => (contenders[id].lacks === "" ? "–" : contenders[id].lacks);
const onHost = ({ busy }, title) => [title, busy ? "busy host" : ""].filter(Boolean).join("; ");

/** The cell that says what is missing, but not again for the busy host. */
const missing = ({ busy }, cell) => (busy ? [] : [cell]);

function table(heading, lines) {
  const row = (cells) => `| ${cells.join(" | ")} |`;
  const rule = heading.map((title, column) => (column === 0 || title === LACKS ? "---" : "---:"));
  return [row(heading), row(rule), ...lines.map(row)].join("\n");
}
