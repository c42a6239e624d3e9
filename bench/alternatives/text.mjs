// The page's text, around what was measured.

import { contenders, storeOf } from "./contenders.mjs";
import { behind, figure, inFlights, inRow } from "./figures.mjs";
import { reasonsFor } from "./reasons.mjs";
import { CONNECTIONS, CONTENDED_IN_FLIGHT, HOLD_MS, HOLDING_TTL_MS, KEYS, PROCESSES, secondsOf, WAITERS, WARM_MS, WORK_MICROS } from "./settings.mjs"; // prettier-ignore
import { STORES } from "./stores.mjs";

const LACKS = "what it does not do";

/** The page, as Markdown. */
export function text(report) {
  const parts = [
    intro(report),
    pairs(report),
    contended(report),
    handOff(report),
    holding(report),
    http(report),
    slower(report),
    settings(report),
  ];
  // Links are written as seen from the repository.
  return parts.join("\n\n").replaceAll("](docs/", "](");
}

function intro({ date, machine, versions, runs, seconds, minutes }) {
  return `# Benchmarks

This package beside what else one would pick, on the same work, in one run on one machine. The numbers are made by
\`npm run bench -- alternatives\`, all samples are in [alternatives.json](docs/benchmarks/alternatives.json), and this page is
written from them by \`bench/alternatives/page.mjs\`. Compare what stands in one table. Figures of another day, or of
another machine, are other figures.

**How.** Each contender has processes of its own. They take turns: in each of ${runs} runs everybody is measured once, for
${seconds} s or more, after ${WARM_MS} ms of warm-up, and the order rotates. A figure is the median of the runs, with the
smallest and the largest in brackets. The servers run on the same machine, without a network between, so the
time of the libraries themselves is a larger part here than elsewhere. CPU is that of the contender's process; "main thread"
is the part of it that JavaScript has, and that an application cannot use.

**Where.** ${machine.cores} cores, ${machine.cpu}, ${machine.memoryGiB} GiB, ${machine.system}; ${date}; ${Math.round(minutes)} minutes.
${Object.entries(versions)
  .map(([name, version]) => `${name} ${version}`)
  .join(", ")}.
Redis does not save; PostgreSQL waits for its disk (\`fsync\`); Firestore is this repository's emulator, so that only
the clients can be compared, not the store.

**What is missing stands beside the numbers.** A _fence_ is a number that grows with each holder of a key, with which the
data can refuse who comes too late. _Look-up by id_ tells whether a lock still belongs to whom it was given. _Undo_ releases
in the background what the server may have granted when an attempt was cancelled or its answer was lost; without it such a
lock stays for its TTL. With _wake-up_ a waiter hears of a release instead of asking again and again.`;
}

function pairs(report) {
  const levels = inFlights(report, "pairs");
  const parts = [
    `## Acquire and release

Pairs of an acquisition and its release a second, each on a key of its own, with 1 to 256 at a time.`,
  ];
  for (const [store, name] of Object.entries(STORES)) {
    const ids = inRow(report, "pairs", store);
    parts.push(
      `### ${name}`,
      `![Pairs per second on ${name}](docs/benchmarks/pairs-${store}.svg)`,
      table(
        ["in flight: pairs/s", ...levels.map(String), LACKS],
        ids.map((id) => [
          ...[nameOf(id), ...levels.map((level) => shown(report, "pairs", id, "rate", level))],
          lacks(id),
        ]),
      ),
      table(
        ["in flight: CPU of the main thread (of the process), µs a pair", ...levels.map(String)],
        ids.map((id) => [
          nameOf(id),
          ...levels.map((level) => {
            const [main, all] = ["mainCpu", "cpu"].map((field) =>
              figure(report, "pairs", id, field, level).value.toFixed(0),
            );
            return `${main} (${all})`;
          }),
        ]),
      ),
    );
  }
  return parts.join("\n\n");
}

function contended(report) {
  return `## Contended attempts

${CONTENDED_IN_FLIGHT} at a time ask for a lock that another client holds, once each, and are refused.

${rowTable(report, "contended", [
  ["attempts/s", "rate"],
  ["p99, µs", "p99"],
  ["main thread, µs an attempt", "mainCpu", { digits: 1 }],
])}`;
}

function handOff(report) {
  return `## Hand-off

${WAITERS} waiters in ${PROCESSES} processes want one lock all the time, and each holds it for ${HOLD_MS} ms. The lock is held for all of
the time if hand-overs take none. A waiter waits for ${WAITERS - 1} others at least, which is ${(WAITERS - 1) * HOLD_MS} ms, unless it overtakes them.

![Share of the time that the lock was held](docs/benchmarks/hand-off.svg)

${rowTable(report, "handOff", [
  ["held, of the time", "share", { factor: 100, unit: " %" }],
  ["median wait, ms", "p50"],
  ["p99 wait, ms", "p99"],
  ["longest, ms", "longest"],
])}`;
}

function holding(report) {
  const { locks, seconds } = report;
  return `## ${whole(locks)} locks that extend themselves

One process holds them, with a TTL of ${HOLDING_TTL_MS / 1_000} s; what that costs is counted for ${secondsOf("holding", seconds)} s. The event loop is idle besides: how
late it is (\`perf_hooks.monitorEventLoopDelay\`, less its resolution of 1 ms) is what other work of the process would feel.
_Lost_ is what the library reported, _gone_ what was no longer in Redis at the end.

![CPU of the main thread](docs/benchmarks/holding.svg)

${rowTable(report, "holding", [
  ["main thread, of a core", "mainCpu", { factor: 100, unit: " %", digits: 1 }],
  ["process", "cpu", { factor: 100, unit: " %", digits: 1 }],
  ["loop late p99, ms", "loopP99", { digits: 1 }],
  ["longest, ms", "loopMax"],
  ["extensions/s", "extensions"],
  ["lost", "lost"],
  ["gone", "gone"],
])}

By hand on ioredis nothing extends a lock, and a lock of \`pg_advisory_lock\` has no time after which it ends.`;
}

function http(report) {
  return `## An HTTP server

What a user feels: each request takes one of ${whole(KEYS)} locks at random, works for ${WORK_MICROS} µs under it, releases it and answers. autocannon
keeps ${CONNECTIONS} connections busy from another process, on the same machine. No request failed.

![Requests per second](docs/benchmarks/http.svg)

![99th percentile of latencies](docs/benchmarks/http-p99.svg)

${rowTable(report, "http", [
  ["requests/s", "rate"],
  ["p50, ms", "p50"],
  ["p99, ms", "p99"],
  ["loop late p99, ms", "loopP99", { digits: 1 }],
])}`;
}

/** Where others are ahead, and why. */
function slower(report) {
  const groups = new Map();
  for (const one of behind(report)) {
    const { row, store, what, inFlight, ahead } = one;
    const reasons = reasonsFor(one);
    if (reasons.length === 0) throw new Error(`no reason is known for ${row} on ${store}`);
    const key = `${TITLES[row]} on ${STORES[store]}`;
    const group = groups.get(key) ?? { lines: new Map(), reasons: new Set() };
    groups.set(key, group);
    for (const reason of reasons) group.reasons.add(reason);
    const ratios = ahead.map(({ name, ours, theirs }) => `${ratio(ours, theirs)} × ${name}`);
    const line = group.lines.get(what) ?? [];
    line.push(`${inFlight === undefined ? "" : `${inFlight} in flight: `}${ratios.join(", ")}`);
    group.lines.set(what, line);
  }
  const parts = [
    `## Where this package is behind

Every figure above in which another contender on the same store is ahead by more than 3 %, as this package's ÷ theirs.`,
  ];
  for (const [title, { lines, reasons }] of groups) {
    parts.push(
      `### ${title}`,
      [...lines].map(([what, found]) => `- **${what}** — ${found.join("; ")}`).join("\n"),
      [...reasons].join(" "),
    );
  }
  if (groups.size === 0) parts.push("There is none in this run.");
  return parts.join("\n\n");
}

const TITLES = {
  pairs: "Acquire and release",
  contended: "Contended attempts",
  handOff: "Hand-off",
  holding: "Locks that extend themselves",
  http: "The HTTP server",
};

function settings(report) {
  const ids = Object.keys(contenders).filter((id) => inRow(report, "pairs").includes(id));
  const lines = ids.map(
    (id) => `- **${contenders[id].name}** (${STORES[storeOf(id)]}): ${contenders[id].settings}.`,
  );
  return `## Settings

Everybody has the defaults of its library but for what stands here; ioredis, too, so that auto-pipelining is off. Redis
locks have a TTL of 30 s unless the text says otherwise.

${lines.join("\n")}

\`@google-cloud/firestore\` has no locks: what is measured is a lock of the same format, written with its transactions. Under
\`redlock\`, npm's \`latest\` is still version 4; what its repository documents, and what is measured here, is version 5.`;
}

/** A table with a line for each contender of a row. */
function rowTable(report, row, columns) {
  return table(
    ["", ...columns.map(([title]) => title), LACKS],
    inRow(report, row).map((id) => [
      `${STORES[storeOf(id)]}: ${nameOf(id)}`,
      ...columns.map(([, field, format]) => shown(report, row, id, field, undefined, format)),
      lacks(id),
    ]),
  );
}

/** The median with its spread. */
function shown(report, row, id, field, inFlight, { factor = 1, unit = "", digits = 0 } = {}) {
  const { value, low, high } = figure(report, row, id, field, inFlight);
  const [middle, from, to] = [value, low, high].map((each) =>
    (each * factor).toLocaleString("en", {
      minimumFractionDigits: digits,
      maximumFractionDigits: digits,
    }),
  );
  return from === to ? `${middle}${unit}` : `${middle}${unit} (${from}–${to})`;
}

const whole = (value) => value.toLocaleString("en");
const ratio = (ours, theirs) => (theirs === 0 ? "more than nothing" : (ours / theirs).toFixed(2));
const nameOf = (id) => (id.endsWith("/syncguard") ? "**syncguard**" : contenders[id].name);
const lacks = (id) => (contenders[id].lacks === "" ? "–" : contenders[id].lacks);

function table(heading, lines) {
  const row = (cells) => `| ${cells.join(" | ")} |`;
  const rule = heading.map((title, column) => (column === 0 || title === LACKS ? "---" : "---:"));
  return [row(heading), row(rule), ...lines.map(row)].join("\n");
}
