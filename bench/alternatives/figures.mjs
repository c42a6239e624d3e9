// The samples of a report, as medians, and who is ahead.

import { median } from "../lib/table.mjs";
import { contenders, storeOf } from "./contenders.mjs";

/** The median of a field of a contender's samples, the smallest and the largest. */
export function figure(report, row, contender, field, inFlight) {
  const values = report.samples[row]
    .filter((one) => one.contender === contender)
    .filter((one) => inFlight === undefined || one.inFlight === inFlight)
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

/** How many were in flight, for a row that varies it. */
export const inFlights = (report, row) =>
  [...new Set(report.samples[row].map(({ inFlight }) => inFlight))].sort((a, b) => a - b);

/** What is compared, and how it is said. `more` is better, or less is. */
const COMPARED = [
  { row: "pairs", field: "rate", more: true, what: "pairs a second" },
  { row: "pairs", field: "mainCpu", more: false, what: "CPU of the main thread for a pair" },
  { row: "pairs", field: "cpu", more: false, what: "CPU of the whole process for a pair" },
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
 * Where this package is behind: `{ row, store, what, inFlight, behind: [{ name, ratio }] }`, with what is better worded as
 * `ratio` = ours ÷ theirs.
 */
export function behind(report) {
  const found = [];
  for (const { row, field, more, what } of COMPARED) {
    const levels = row === "pairs" ? inFlights(report, row) : [undefined];
    for (const store of new Set(inRow(report, row).map(storeOf))) {
      const own = `${store}/syncguard`;
      const others = inRow(report, row, store).filter((id) => id !== own);
      for (const inFlight of levels) {
        const ours = figure(report, row, own, field, inFlight)?.value;
        if (ours === undefined) continue;
        const ahead = others.flatMap((id) => {
          const theirs = figure(report, row, id, field, inFlight).value;
          const worse = more ? theirs > ours * (1 + NOISE) : ours > theirs * (1 + NOISE);
          return worse ? [{ name: contenders[id].name, ours, theirs }] : [];
        });
        if (ahead.length > 0) found.push({ row, field, store, what, inFlight, ahead });
      }
    }
  }
  return found;
}
