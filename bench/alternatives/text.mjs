// The text of the page, around what was measured.

import { contenders } from "./contenders.mjs";
import { behind, figure, inRow, levels, VARIED } from "./figures.mjs";
import { reasonsFor } from "./reasons.mjs";
import { CONTENDED_IN_FLIGHT, HANDED_SLOTS, HOLD_MS, HOLDING_TTL_MS, KEYS, PROCESSES, secondsOf, SETS_IN_FLIGHT, WAITERS, WARM_MS, WORK_MICROS } from "./settings.mjs"; // prettier-ignore
import { STORES } from "./stores.mjs";
import { busyTable, contenderTable, levelTable, rowTable, shown } from "./tables.mjs";

/** The page, as Markdown, from what was measured on a quiet host. `runs` are those of which these rows come. */
export function text(quiet, busy, runs) {
  const rows = [pairs, together, contended, handOff, holding, http, slower];
  const parts = [
    intro(quiet, busy, runs),
    ...rows.flatMap((part) => part(quiet)),
    ...(busy === undefined ? [] : [onBusyHost(busy)]),
    participants(quiet),
  ];
  // Links are written as seen from the repository.
  return parts.join("\n\n").replaceAll("](docs/", "](");
}

function intro({ versions, runs, seconds }, busy, all) {
  const names = all.flatMap((run) => [run.quiet, run.busy ?? []].flat()).map(({ file }) => file);
  const links = names.map((file) => `[${file}](docs/benchmarks/${file})`);
  const files = `${busy === undefined ? "" : "once as it is and once with `--busy`; "}all samples are in ${links.join(", ")}`;
  return `# Benchmarks

This package compared with the alternatives on the same work, in one run on one machine. Compare figures within one table
only. \`npm run bench -- alternatives\` measures them (${files}).

**Method.** Each contender runs in processes of its own. Each of ${runs} runs measures every contender once, for ${seconds} s or more,
after ${WARM_MS} ms of warm-up, in rotating order. A figure is the median of the runs; lines in the charts go from the
minimum to the maximum. The servers run on the same machine, so the libraries' own time weighs more than over a network. CPU is that of
the contender's process; "main thread" is JavaScript's part of it.

${busy === undefined ? "" : `${HOSTS}\n\n`}**Machine.** ${all.map(where).join(" ")}
${Object.entries(versions)
  .map(([name, version]) => `${name} ${version}`)
  .join(", ")}.
Redis does not save; PostgreSQL waits for its disk (\`fsync\`); Firestore is this repository's emulator, so the figures
compare the clients, not the store. [Contenders](#contenders) has their settings, and what each of them lacks.`;
}

/** Where and when a run was, and how long it took; what it was of, if there were several. */
function where({ quiet, busy }, _, { length }) {
  const rows = Object.keys(TITLES).filter((row) => quiet.samples[row] !== undefined);
  const of = length === 1 ? "" : `_${rows.map((row) => TITLES[row]).join("_, _")}_: `;
  const { cores, cpu, memoryGiB, system } = quiet.machine;
  const [one, other] = [quiet, busy].map((run) => run && `${run.date}; ${minutesOf(run)}`);
  return `${of}${cores} cores, ${cpu}, ${memoryGiB} GiB, ${system}; ${one}${other === undefined ? "" : `, and on the busy host ${other}`}.`;
}

const minutesOf = ({ minutes }) => `${Math.round(minutes)} minutes`;

const HOSTS = `**Two hosts.** This page shows a quiet host, whose idle cores sleep. On [a busy host](#on-a-busy-host), a loop of the idle
class (\`SCHED_IDLE\`) keeps each core awake, as other work does on a server.`;

function pairs(report) {
  const parts = [
    "## Acquire and release",
    `Pairs of an acquisition and its release, each on its own key, with 1 to 256 in flight. The charts have more steps than the tables. CPU is
that of the main thread (of the process) for a pair, in µs.`,
  ];
  for (const [store, name] of Object.entries(STORES)) {
    parts.push(
      `### ${name}`,
      `![Pairs per second on ${name}](docs/benchmarks/pairs-${store}.svg)`,
      pairTable(report, store),
    );
  }
  return parts;
}

const cpuIn = (report) => (id, level) => {
  const [main, all] = ["mainCpu", "cpu"].map((field) =>
    figure(report, "pairs", id, field, level).value.toFixed(0),
  );
  return `${main} (${all})`;
};

/** What a store's contenders do at three of the levels, and what that costs. */
function pairTable(report, store) {
  const shownLevels = levels(report, "pairs").filter((level) => [1, 16, 256].includes(level));
  const columns = [
    ["pairs/s", (id, level) => shown(report, "pairs", id, "rate", level)],
    ["CPU", cpuIn(report)],
  ];
  return levelTable(report, "pairs", store, columns, shownLevels);
}

function together(report) {
  const tablesOf = (row) => {
    const columns = [
      ["pairs/s", (id, level) => shown(report, row, id, "rate", level)],
      ["main thread, µs a pair", (id, level) => shown(report, row, id, "mainCpu", level)],
    ];
    return levelTable(report, row, "redis", columns, levels(report, row));
  };
  const columns = [
    ["held, of the time", "share", { factor: 100, unit: " %" }],
    ["median wait, ms", "p50"],
    ["p99 wait, ms", "p99"],
    ["longest, ms", "longest"],
  ];
  return [
    "## Several keys at once",
    `Pairs of an acquisition of ${list(levels(report, "sets"))} keys, which nobody else wants, and their release, ${SETS_IN_FLIGHT} at a time. Of the
others, only redlock-universal takes several keys in one step; it releases them one by one.`,
    "![Pairs of several keys per second](docs/benchmarks/sets.svg)",
    tablesOf("sets"),
    "## At most N at a time",
    `Callers take one of the slots of one key and give it back at once. There are ${list([...new Set(levels(report, "slots").map((level) => level.split(" / ")[0]))])} slots; the number behind
the stroke is how many callers are in flight. If there are more callers than slots, they wait.`,
    "![Pairs of slots per second](docs/benchmarks/slots.svg)",
    tablesOf("slots"),
    `${WAITERS} waiters in ${PROCESSES} processes keep asking for one of ${HANDED_SLOTS} slots, and each holds it for ${HOLD_MS} ms.`,
    "![Share of the time that the slots were held](docs/benchmarks/hand-off-slots.svg)",
    rowTable(report, "handOffSlots", columns),
  ];
}

const list = (values) => `${values.slice(0, -1).join(", ")} or ${values.at(-1)}`;

function contended(report) {
  const columns = [
    ["attempts/s", "rate"],
    ["p99, µs", "p99"],
    ["main thread, µs an attempt", "mainCpu", { digits: 1 }],
  ];
  const about = `Attempts to take a lock that another client holds, ${CONTENDED_IN_FLIGHT} in flight. Each is refused.`;
  return ["## Contended attempts", about, rowTable(report, "contended", columns)];
}

function handOff(report) {
  const columns = [
    ["held, of the time", "share", { factor: 100, unit: " %" }],
    ["median wait, ms", "p50"],
    ["p99 wait, ms", "p99"],
    ["longest, ms", "longest"],
  ];
  return [
    "## Hand-off",
    `${WAITERS} waiters in ${PROCESSES} processes keep asking for one lock, and each holds it for ${HOLD_MS} ms. Hand-overs that take no time
would give 100 %. A waiter that overtakes nobody waits for at least ${WAITERS - 1} others, ${(WAITERS - 1) * HOLD_MS} ms.`,
    "![Share of the time that the lock was held](docs/benchmarks/hand-off.svg)",
    rowTable(report, "handOff", columns),
  ];
}

function holding(report) {
  const { locks, seconds } = report;
  const columns = [
    ["main thread, of a core", "mainCpu", { factor: 100, unit: " %", digits: 1 }],
    ["process", "cpu", { factor: 100, unit: " %", digits: 1 }],
    ["loop late p99, ms", "loopP99", { digits: 1 }],
    ["longest, ms", "loopMax"],
    ["extensions/s", "extensions"],
    ["lost", "lost"],
    ["gone", "gone"],
  ];
  return [
    `## ${whole(locks)} locks that extend themselves`,
    `One process holds them with a TTL of ${HOLDING_TTL_MS / 1_000} s, and is measured for ${secondsOf("holding", seconds)} s. "Loop late" is the delay that other work on the event loop
would see (\`perf_hooks.monitorEventLoopDelay\`, less its resolution of 1 ms). "Lost" is what the library reported, "gone"
what was missing in Redis at the end.`,
    "![CPU of the main thread](docs/benchmarks/holding.svg)",
    rowTable(report, "holding", columns),
  ];
}

function http(report) {
  const connections = levels(report, "http");
  const columns = [
    ["requests/s", "rate", {}],
    ["p99, ms", "p99", { digits: 1 }],
    ["loop late p99, ms", "loopP99", { digits: 1 }],
  ].flatMap(([title, field, format]) =>
    connections.map((level, place) => [
      place === 0 ? `${title}: ${level}` : `${level}`,
      field,
      { ...format, level },
    ]),
  );
  return [
    "## An HTTP server",
    `Each request takes one of ${whole(KEYS)} locks at random, works for ${WORK_MICROS} µs under it, releases it and answers. autocannon
keeps ${connections.join(" or ")} connections busy from another process on the same machine. No request failed.`,
    "![Requests per second](docs/benchmarks/http.svg)",
    "![99th percentile of latencies](docs/benchmarks/http-p99.svg)",
    rowTable(report, "http", columns),
  ];
}

/** The figure that counts of each row: the rest is in the file. */
function onBusyHost(report) {
  const connections = levels(report, "http").at(-1);
  return [
    "## On a busy host",
    `The same work on a host whose cores never sleep; [${report.file}](docs/benchmarks/${report.file}) has all samples.`,
    busyTable(report, [
      ["pairs/s, 16 in flight", "pairs", "rate", 16],
      ["attempts/s", "contended", "rate"],
      ["handed off: held, %", "handOff", "share", undefined, { factor: 100 }],
      [`requests/s, ${connections} connections`, "http", "rate", connections],
    ]),
  ].join("\n\n");
}

/** Where others are ahead, and why: each reason once. */
function slower(report) {
  const groups = new Map();
  const given = new Set();
  for (const one of behind(report)) {
    const { row, store, what, level, ahead } = one;
    const reasons = reasonsFor(one);
    if (reasons.length === 0) throw new Error(`no reason is known for ${row} on ${store}`);
    const key = `${TITLES[row]} on ${STORES[store]}`;
    const group = groups.get(key) ?? { lines: new Map(), reasons: new Set() };
    groups.set(key, group);
    for (const reason of reasons) group.reasons.add(reason);
    const worst = ahead.reduce((one, other) => (apart(other) > apart(one) ? other : one));
    const found = group.lines.get(what) ?? [];
    group.lines.set(what, [...found, { ...worst, level, of: VARIED[row] }]);
  }
  const about =
    "Every figure in which another contender on the same store is ahead by more than 3 %: this package's figure ÷ the best one, where it is furthest behind. Each reason is given once.";
  const parts = ["## Where this package is behind", about];
  for (const [title, { lines, reasons }] of groups) {
    const found = [...lines].map(([what, found]) => `- **${what}** — ${furthest(found)}`);
    parts.push(`### ${title}`, found.join("\n"));
    const others = [...reasons].filter((reason) => !given.has(reason));
    for (const reason of others) given.add(reason);
    if (others.length > 0) parts.push(others.join(" "));
  }
  if (groups.size === 0) parts.push("There is none in this run.");
  return parts;
}

/** The figure that is furthest behind, and the other levels at which one is. */
function furthest(found) {
  const worst = found.reduce((one, other) => (apart(other) > apart(one) ? other : one));
  const { level, of, name, ours, theirs } = worst;
  const others = found.filter((one) => one !== worst).map(({ level }) => level);
  const at = level === undefined ? "" : `${level} ${of}: `;
  return `${at}${ratio(ours, theirs)} × ${name}${others.length === 0 ? "" : `; also at ${others.join(", ")}`}`;
}

/** The rows, as the page calls them. */
export const TITLES = {
  pairs: "Acquire and release",
  sets: "Several keys at once",
  slots: "At most N at a time",
  handOffSlots: "Hand-off of slots",
  contended: "Contended attempts",
  handOff: "Hand-off",
  holding: "Locks that extend themselves",
  http: "The HTTP server",
};

function participants(report) {
  return `## Contenders

Other settings are the library's defaults. Redis locks have a TTL of 30 s unless the text says otherwise.

${contenderTable(Object.keys(contenders).filter((id) => inRow(report, "pairs").includes(id)))}

_Look-up by id_ tells whether a lock still belongs to the holder it was given to. _Undo_ releases what was granted to an
attempt that was cancelled, or whose answer was lost; otherwise its lock stays for its TTL.`;
}

const whole = (value) => value.toLocaleString("en");
/** How far two figures are from each other, whichever is larger. */
const apart = ({ ours, theirs }) => Math.abs(Math.log(ours / theirs));
const ratio = (ours, theirs) => (theirs === 0 ? "more than nothing" : (ours / theirs).toFixed(2));
