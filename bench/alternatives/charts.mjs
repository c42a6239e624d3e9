// The charts of the page.

import { barChart } from "./chart.mjs";
import { contenders, storeOf } from "./contenders.mjs";
import { figure, inRow, levels, VARIED } from "./figures.mjs";
import { STORES } from "./stores.mjs";

const whole = (value) => Math.round(value).toLocaleString("en");
const percent = (value) => `${value.toFixed(value < 10 ? 1 : 0)} %`;
const millis = (value) => `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;

/** Where the charts are, and the page beside it. */
export const FOLDER = "docs/benchmarks";

/** The SVGs, by their path in the repository. */
export function charts(report) {
  const files = new Map();
  const add = (name, chart) => files.set(`${FOLDER}/${name}.svg`, barChart(chart));
  for (const store of Object.keys(STORES)) {
    add(`pairs-${store}`, {
      title: `${STORES[store]}: acquire + release`,
      axis: "pairs per second; more is better",
      sections: levels(report, "pairs").map((level) => ({
        label: `${level} ${VARIED.pairs}`,
        bars: bars(report, "pairs", "rate", { store, level, show: whole }),
      })),
    });
  }
  add("sets", {
    title: "Several keys at once on Redis: acquire + release",
    axis: "pairs per second; more is better",
    sections: byStore(report, "sets", "rate", { show: whole }),
  });
  add("slots", {
    title: "One of so many slots on Redis: acquire + release",
    axis: "pairs per second; more is better",
    sections: byStore(report, "slots", "rate", { show: whole }),
  });
  add("hand-off-slots", {
    title: "Hand-off: 16 wait for one of four slots, in four processes",
    axis: "share of the time that the slots were held, %; more is better",
    sections: byStore(report, "handOffSlots", "share", { factor: 100, show: percent }),
  });
  add("hand-off", {
    title: "Hand-off: 16 wait for one lock, in four processes",
    axis: "share of the time that the lock was held, %; more is better",
    sections: byStore(report, "handOff", "share", { factor: 100, show: percent }),
  });
  add("holding", {
    title: `${whole(report.locks)} locks that extend themselves`,
    axis: "CPU of the main thread, % of a core; less is better",
    sections: byStore(report, "holding", "mainCpu", { factor: 100, show: percent }),
  });
  add("http", {
    title: "HTTP server: requests",
    axis: "requests per second; more is better",
    sections: byStore(report, "http", "rate", { show: whole }),
  });
  add("http-p99", {
    title: "HTTP server: latency",
    axis: "99th percentile of latencies, ms; less is better",
    sections: byStore(report, "http", "p99", { show: millis }),
  });
  return files;
}

function byStore(report, row, field, options) {
  const stores = [...new Set(inRow(report, row).map(storeOf))];
  const all = row in VARIED ? levels(report, row) : [undefined];
  return stores.flatMap((store) =>
    all.map((level) => ({
      label: `${STORES[store]}${level === undefined ? "" : `, ${level} ${VARIED[row]}`}`,
      bars: bars(report, row, field, { ...options, store, level }),
    })),
  );
}

function bars(report, row, field, { store, level, factor = 1, show }) {
  return inRow(report, row, store).map((id) => {
    const { value, low, high } = figure(report, row, id, field, level);
    return {
      name: contenders[id].name,
      own: id === `${store}/syncguard`,
      value: value * factor,
      low: low * factor,
      high: high * factor,
      text: show(value * factor),
    };
  });
}
