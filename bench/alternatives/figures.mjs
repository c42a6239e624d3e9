// The samples of a report, as medians, and who is ahead.

import { median } from "../lib/table.mjs";
import { contenders, storeOf } from "./contenders.mjs";

/** Rows that are measured at several levels, and of what. */
export const VARIED = {
  pairs: "in flight",
  http: "connections",
  sets: "keys",
  slots: "slots / in flight",
};

const levelOf = ({ inFlight, connections, keys, slots }) =>
  slots === undefined ? (keys ?? inFlight ?? connections) : `${slots} / ${inFlight}`;

/** The median of a field of a contender's samples, the smallest and the largest; at one level if it is given. */
export function figure(report, row, contender, field, level) {
  const values = report.samples[row]
    .filter((one) => one.contender === contender)
    .filter((one) => level === undefined || levelOf(one) === level)
    .map((one) => one[field]);
  if (values.length === 0) return undefined;
  return { value: median(values), low: Math.min(...values), high: Math.max(...values) };
}

/** Those with samples in a row, on one store if it is given, in the order of the list of contenders. */
export function inRow(report, row, store) {
  const there = new Set(report.samples[row].map(({ contender }) => contender));
  return Object.keys(contenders).filter(
    (id) => there.has(id) && (store === undefined || storeOf(id) === store),
  );
}

/** The levels of a row, in the order in which they are measured. */
export const levels = (report, row) => [...new Set(report.samples[row].map(levelOf))];

/** What is compared, and how it is said. `more` is better, or less is. */
const COMPARED = [
  { row: "pairs", field: "rate", more: true, what: "pairs a second" },
  { row: "pairs", field: "mainCpu", more: false, what: "CPU of the main thread for a pair" },
  { row: "pairs", field: "cpu", more: false, what: "CPU of the whole process for a pair" },
  { row: "sets", field: "rate", more: true, what: "pairs a second" },
  { row: "sets", field: "mainCpu", more: false, what: "CPU of the main thread for a pair" },
  { row: "slots", field: "rate", more: true, what: "pairs a second" },
  { row: "slots", field: "mainCpu", more: false, what: "CPU of the main thread for a pair" },
  { row: "handOffSlots", field: "share", more: true, what: "of the time that slots were held" },
  { row: "handOffSlots", field: "p99", more: false, what: "99th percentile of waits" },
  { row: "contended", field: "rate", more: true, what: "failed attempts a second" },
  { row: "handOff", field: "share", more: true, what: "of the time that the lock was held" },
  { row: "handOff", field: "p99", more: false, what: "99th percentile of waits" },
  { row: "holding", field: "mainCpu", more: false, what: "CPU of the main thread" },
  { row: "holding", field: "cpu", more: false, what: "CPU of the whole process" },
  { row: "holding", field: "loopP99", more: false, what: "lateness of the event loop" },
  { row: "http", field: "rate", more: true, what: "requests a second" },
  { row: "http", field: "p99", more: false, what: "99th percentile of latencies" },
  { row: "http", field: "loopP99", more: false, what: "lateness of the event loop" },
];

/** Less than this is noise. */
const NOISE = 0.03;

/**
 * Where this package is behind: `{ row, field, store, what, level, ahead: [{ name, ours, theirs }] }`.
 */
export function behind(report) {
  const found = [];
  for (const { row, field, more, what } of COMPARED) {
    const all = row in VARIED ? levels(report, row) : [undefined];
    for (const store of new Set(inRow(report, row).map(storeOf))) {
      const own = `${store}/syncguard`;
      const others = inRow(report, row, store).filter((id) => id !== own);
      for (const level of all) {
        const ours = figure(report, row, own, field, level)?.value;
        if (ours === undefined) continue;
        const ahead = others.flatMap((id) => {
          const theirs = figure(report, row, id, field, level).value;
          const worse = more ? theirs > ours * (1 + NOISE) : ours > theirs * (1 + NOISE);
          return worse ? [{ name: contenders[id].name, ours, theirs }] : [];
        });
        if (ahead.length > 0) found.push({ row, field, store, what, level, ahead });
      }
    }
  }
  return found;
}
