// Pairs of acquire and release: everybody is measured in turn, and ratios are within the run.

import { startMember } from "./members.mjs";
import { median, printTable, spread } from "./table.mjs";

const TASKS = new URL("pair-tasks.mjs", import.meta.url);

/** Milliseconds of pairs that are not counted: before the first sample, and before each. */
const FIRST_WARM_MS = 1_000;
const WARM_MS = 100;

/** What `load` tells, with its unit as a heading, and its name as that of a ratio. */
const FIELDS = [
  { field: "rate", unit: "pairs/s", name: "pairs/s", digits: 0 },
  { field: "p50", unit: "p50, µs", name: "p50", digits: 0 },
  { field: "p99", unit: "p99, µs", name: "p99", digits: 0 },
  { field: "cpu", unit: "CPU, µs/pair", name: "CPU", digits: 1 },
  { field: "mainCpu", unit: "main thread CPU, µs/pair", name: "main thread CPU", digits: 1 },
  { field: "mainBusy", unit: "main thread busy, µs/pair", name: "main thread busy", digits: 1 },
];

/** A contender in a process of its own: `open[who](options)` of the module `contenders`, which has `pair(index)`. */
export function contender(contenders, who, options) {
  const member = startMember(who, TASKS, String(contenders), who, options);
  return {
    warm: () => member.ask("pairs", { inFlight: 16, ms: 0, warmMs: FIRST_WARM_MS }),
    sample: (inFlight, ms) => member.ask("pairs", { inFlight, ms, warmMs: WARM_MS }),
    idle: (ms) => member.ask("idle", { ms }),
  };
}

/**
 * Measures contenders, by name, with so many pairs in flight as `levels` says, one after the other. A contender has
 * `sample(inFlight, ms)`, which may leave out fields, and perhaps `warm()`. Prints what was measured, and the ratios of the
 * first to each of the others, unless `ratios` names others. Resolves to the samples by name for each level.
 */
export async function comparePairs(contenders, levels, options) {
  const { runs = 7, seconds = 1, ratios, afterRun } = options;
  console.log(
    `medians of ${runs} interleaved runs of ${seconds} s (smallest–largest); a pair is acquire + release\n`,
  );
  const names = Object.keys(contenders);
  for (const { warm } of Object.values(contenders)) await warm?.();
  const results = levels.map((inFlight) => ({
    inFlight,
    samples: Object.fromEntries(names.map((name) => [name, []])),
  }));
  for (let run = 0; run < runs; run += 1) {
    for (const { inFlight, samples } of results) {
      // Each goes first as often as the others.
      const order = [...names];
      order.push(...order.splice(0, run % order.length));
      for (const name of order) {
        samples[name].push(await contenders[name].sample(inFlight, seconds * 1_000));
      }
    }
    await afterRun?.();
  }
  print(results, ratios ?? names.slice(1).map((other) => [names[0], other]));
  return results;
}

function print(results, ratios) {
  const figures = [["in flight", "", ...FIELDS.map(({ unit }) => unit)]];
  const compared = [["in flight", "", ...FIELDS.map(({ name }) => name), "pairs/s, run by run"]];
  for (const { inFlight, samples } of results) {
    const of = (name, field) => samples[name].map((sample) => sample[field]);
    const has = (name, field) => of(name, field).every((value) => value !== undefined);
    for (const name of Object.keys(samples)) {
      figures.push([
        ...[String(inFlight), name],
        ...FIELDS.map(({ field, digits }) => has(name, field) ? spread(of(name, field), digits) : ""),
      ]); // prettier-ignore
    }
    for (const [name, other] of ratios) {
      compared.push([
        ...[String(inFlight), `${name} ÷ ${other}`],
        ...FIELDS.map(({ field }) => has(other, field) ? ratio(of(name, field), of(other, field)) : ""),
        runByRun(of(name, "rate"), of(other, "rate")),
      ]); // prettier-ignore
    }
  }
  printTable(figures);
  if (compared.length === 1) return;
  console.log();
  printTable(compared);
  for (const [name, other] of ratios) {
    const logarithms = results.map(({ samples }) => {
      const rates = [name, other].map((who) => samples[who].map(({ rate }) => rate));
      return Math.log(median(quotients(...rates)));
    });
    const mean = Math.exp(logarithms.reduce((sum, value) => sum + value, 0) / results.length);
    console.log(`\n${name} ÷ ${other}: ${mean.toFixed(3)}, the geometric mean of all rows`);
  }
}

/** What was measured in each run by what was measured beside it. */
const quotients = (values, others) => values.map((value, run) => value / others[run]);

/** The median of the quotients, and where that of all possible runs lies with a probability of 95 %. */
function runByRun(values, others) {
  const sorted = quotients(values, others).sort((a, b) => a - b);
  const [low, high] = intervalOfMedian(sorted).map((value) => value.toFixed(3));
  return `${median(sorted).toFixed(3)} (${low}–${high})`;
}

/**
 * Between which two of the sorted values their median lies with a probability of 95 %, by their order alone: the number of
 * values below it is that of heads among as many coins. All of them, if they are too few to tell.
 */
export function intervalOfMedian(sorted) {
  const count = sorted.length;
  let ofSoMany = 0.5 ** count;
  let ofFewer = ofSoMany;
  let low = 0;
  while (2 * low + 3 < count) {
    ofSoMany *= (count - low) / (low + 1);
    ofFewer += ofSoMany;
    if (2 * ofFewer > 0.05) break;
    low += 1;
  }
  return [sorted[low], sorted[count - 1 - low]];
}

/** The median by another. */
export function ratio(values, others) {
  const value = median(values) / median(others);
  return value.toFixed(value < 0.1 ? 3 : 2);
}
