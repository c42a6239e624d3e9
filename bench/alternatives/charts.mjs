// The charts of the page.

import { barChart } from "./chart.mjs";
import { contenders, storeOf } from "./contenders.mjs";
import { figure, inFlights, inRow } from "./figures.mjs";
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
      sections: inFlights(report, "pairs").map((inFlight) => ({
        label: `${inFlight} in flight`,
        bars: bars(report, "pairs", "rate", { store, inFlight, show: whole }),
      })),
    });
  }
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
  const stores = new Set(inRow(report, row).map(storeOf));
  return [...stores].map((store) => ({
    label: STORES[store],
    bars: bars(report, row, field, { ...options, store }),
  }));
}

function bars(report, row, field, { store, inFlight, factor = 1, show }) {
  return inRow(report, row, store).map((id) => {
    const { value, low, high } = figure(report, row, id, field, inFlight);
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
