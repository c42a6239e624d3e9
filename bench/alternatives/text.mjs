// The page's text, around what was measured.

import { contenders, storeOf } from "./contenders.mjs";
import { behind, figure, inRow, levels, VARIED } from "./figures.mjs";
import { reasonsFor } from "./reasons.mjs";
import { CONTENDED_IN_FLIGHT, HANDED_SLOTS, HOLD_MS, HOLDING_TTL_MS, KEYS, PROCESSES, secondsOf, SETS_IN_FLIGHT, WAITERS, WARM_MS, WORK_MICROS } from "./settings.mjs"; // prettier-ignore
import { STORES } from "./stores.mjs";
import { levelTable, rowTable, shown } from "./tables.mjs";

/**
 * The page, as Markdown, from what was measured on a quiet host, and on a busy one if that was measured. `runs` are those of
 * which these rows come.
 */
export function text(quiet, busy, runs) {
  const hosts = busy === undefined ? [quiet] : [quiet, busy];
  const parts = [
    intro(quiet, busy, runs),
    pairs(hosts),
    together(hosts),
    contended(hosts),
    handOff(hosts),
    holding(hosts),
    http(hosts),
    slower(hosts),
    settings(quiet),
  ];
  // Links are written as seen from the repository.
  return parts.join("\n\n").replaceAll("](docs/", "](");
}

/** Tables, one below the other. */
const tables = (hosts, make) => hosts.map(make).join("\n\n");

function intro({ versions, runs, seconds }, busy, all) {
  const names = all.flatMap((run) => [run.quiet, run.busy ?? []].flat()).map(({ file }) => file);
  const links = names.map((file) => `[${file}](docs/benchmarks/${file})`);
  const files = `${busy === undefined ? "" : "once as it is and once with `--busy`; "}all samples are in ${links.join(", ")}`;
  return `# Benchmarks

This package beside what else one would pick, on the same work, in one run on one machine. The numbers are made by
\`npm run bench -- alternatives\`, ${files}, and this page is
written from them by \`bench/alternatives/page.mjs\`. Compare what stands in one table. Figures of another day, or of
another machine, are other figures.

**How.** Each contender has processes of its own. They take turns: in each of ${runs} runs everybody is measured once, for
${seconds} s or more, after ${WARM_MS} ms of warm-up, and the order rotates. A figure is the median of the runs, with the
smallest and the largest in brackets. The servers run on the same machine, without a network between, so the
time of the libraries themselves is a larger part here than elsewhere. CPU is that of the contender's process; "main thread"
is the part of it that JavaScript has, and that an application cannot use.

${busy === undefined ? "" : `${HOSTS}\n\n`}**Where.** ${all.map(where).join(" ")}
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

/** Where and when a run was, and how long it took; what it was of, if there were several. */
function where({ quiet, busy }, _, { length }) {
  const rows = Object.keys(TITLES).filter((row) => quiet.samples[row] !== undefined);
  const of = length === 1 ? "" : `_${rows.map((row) => TITLES[row]).join("_, _")}_: `;
  const { cores, cpu, memoryGiB, system } = quiet.machine;
  const [one, other] = [quiet, busy].map((run) => run && `${run.date}; ${minutesOf(run)}`);
  return `${of}${cores} cores, ${cpu}, ${memoryGiB} GiB, ${system}; ${one}${other === undefined ? "" : `, and on the busy host ${other}`}.`;
}

const minutesOf = ({ minutes }) => `${Math.round(minutes)} minutes`;

const HOSTS = `**Two hosts.** On a quiet host, cores sleep when nobody has work, and it takes time to wake them: whoever hands work from
one thread to another pays for that at each step. On a busy host they do not sleep: a loop of the idle class (\`SCHED_IDLE\`)
keeps each core awake, and makes way for everybody. Servers with other work to do are rather like that. Tables of the busy
host stand below those of the quiet one, which the charts show.`;

function pairs(hosts) {
  const parts = [
    `## Acquire and release

Pairs of an acquisition and its release a second, each on a key of its own, with 1 to 256 at a time.`,
  ];
  for (const [store, name] of Object.entries(STORES)) {
    parts.push(
      `### ${name}`,
      `![Pairs per second on ${name}](docs/benchmarks/pairs-${store}.svg)`,
      tables(hosts, (report) =>
        levelTable(report, "pairs", store, "pairs/s", rateIn(report), true),
      ),
      tables(hosts, (report) => levelTable(report, "pairs", store, CPU, cpuIn(report))),
    );
  }
  return parts.join("\n\n");
}

const CPU = "CPU of the main thread (of the process), µs a pair";

const rateIn = (report) => (id, level) => shown(report, "pairs", id, "rate", level);

const cpuIn = (report) => (id, level) => {
  const [main, all] = ["mainCpu", "cpu"].map((field) =>
    figure(report, "pairs", id, field, level).value.toFixed(0),
  );
  return `${main} (${all})`;
};

function together(hosts) {
  const pairs = [
    ["pairs/s", "rate"],
    ["main thread, µs a pair", "mainCpu", { digits: 0 }],
  ];
  const tablesOf = (row) =>
    pairs
      .map(([title, field, format]) =>
        tables(hosts, (report) =>
          levelTable(
            ...[report, row, "redis", title],
            (id, level) => shown(report, row, id, field, level, format),
            field === "rate",
          ),
        ),
      )
      .join("\n\n");
  const columns = [
    ["held, of the time", "share", { factor: 100, unit: " %" }],
    ["median wait, ms", "p50"],
    ["p99 wait, ms", "p99"],
    ["longest, ms", "longest"],
  ];
  return `## Several keys at once

Pairs of an acquisition of ${list(levels(hosts[0], "sets"))} keys, which nobody else wants, and their release, ${SETS_IN_FLIGHT} at a time. redlock-universal is
the one of the others that takes several keys in one step; it releases them one by one.

![Pairs of several keys per second](docs/benchmarks/sets.svg)

${tablesOf("sets")}

## At most N at a time

All want one of the slots of one key, and give it back at once: ${list([...new Set(levels(hosts[0], "slots").map((level) => level.split(" / ")[0]))])} slots, and so many at a time as stands behind the stroke. Where
there are more who want one than there are slots, they wait.

![Pairs of slots per second](docs/benchmarks/slots.svg)

${tablesOf("slots")}

${WAITERS} waiters in ${PROCESSES} processes want one of ${HANDED_SLOTS} slots all the time, and each holds it for ${HOLD_MS} ms.

![Share of the time that the slots were held](docs/benchmarks/hand-off-slots.svg)

${tables(hosts, (report) => rowTable(report, "handOffSlots", columns))}`;
}

const list = (values) => `${values.slice(0, -1).join(", ")} or ${values.at(-1)}`;

function contended(hosts) {
  const columns = [
    ["attempts/s", "rate"],
    ["p99, µs", "p99"],
    ["main thread, µs an attempt", "mainCpu", { digits: 1 }],
  ];
  return `## Contended attempts

${CONTENDED_IN_FLIGHT} at a time ask for a lock that another client holds, once each, and are refused.

${tables(hosts, (report) => rowTable(report, "contended", columns))}`;
}

function handOff(hosts) {
  const columns = [
    ["held, of the time", "share", { factor: 100, unit: " %" }],
    ["median wait, ms", "p50"],
    ["p99 wait, ms", "p99"],
    ["longest, ms", "longest"],
  ];
  return `## Hand-off

${WAITERS} waiters in ${PROCESSES} processes want one lock all the time, and each holds it for ${HOLD_MS} ms. The lock is held for all of
the time if hand-overs take none. A waiter waits for ${WAITERS - 1} others at least, which is ${(WAITERS - 1) * HOLD_MS} ms, unless it overtakes them.

![Share of the time that the lock was held](docs/benchmarks/hand-off.svg)

${tables(hosts, (report) => rowTable(report, "handOff", columns))}`;
}

function holding(hosts) {
  const [{ locks, seconds }] = hosts;
  const columns = [
    ["main thread, of a core", "mainCpu", { factor: 100, unit: " %", digits: 1 }],
    ["process", "cpu", { factor: 100, unit: " %", digits: 1 }],
    ["loop late p99, ms", "loopP99", { digits: 1 }],
    ["longest, ms", "loopMax"],
    ["extensions/s", "extensions"],
    ["lost", "lost"],
    ["gone", "gone"],
  ];
  return `## ${whole(locks)} locks that extend themselves

One process holds them, with a TTL of ${HOLDING_TTL_MS / 1_000} s; what that costs is counted for ${secondsOf("holding", seconds)} s. The event loop is idle besides: how
late it is (\`perf_hooks.monitorEventLoopDelay\`, less its resolution of 1 ms) is what other work of the process would feel.
_Lost_ is what the library reported, _gone_ what was no longer in Redis at the end.

![CPU of the main thread](docs/benchmarks/holding.svg)

${tables(hosts, (report) => rowTable(report, "holding", columns))}

By hand on ioredis nothing extends a lock, and a lock of \`pg_advisory_lock\` has no time after which it ends.`;
}

function http(hosts) {
  const columns = [
    ["requests/s", "rate"],
    ["p50, ms", "p50", { digits: 1 }],
    ["p99, ms", "p99", { digits: 1 }],
    ["loop late p99, ms", "loopP99", { digits: 1 }],
  ];
  const connections = levels(hosts[0], "http");
  return `## An HTTP server

What a user feels: each request takes one of ${whole(KEYS)} locks at random, works for ${WORK_MICROS} µs under it, releases it and answers. autocannon
keeps ${connections.join(" or ")} connections busy from another process, on the same machine. No request failed.

![Requests per second](docs/benchmarks/http.svg)

![99th percentile of latencies](docs/benchmarks/http-p99.svg)

${connections
  .map((level) => tables(hosts, (report) => rowTable(report, "http", columns, level)))
  .join("\n\n")}`;
}

/** Where others are ahead, and why. */
function slower(hosts) {
  const groups = new Map();
  for (const one of hosts.flatMap((report) => behind(report))) {
    const { row, store, what, level, busy, ahead } = one;
    const reasons = reasonsFor(one);
    if (reasons.length === 0) throw new Error(`no reason is known for ${row} on ${store}`);
    const key = `${TITLES[row]} on ${STORES[store]}`;
    const group = groups.get(key) ?? { lines: new Map(), reasons: new Set() };
    groups.set(key, group);
    for (const reason of reasons) group.reasons.add(reason);
    const ratios = ahead.map(({ name, ours, theirs }) => `${ratio(ours, theirs)} × ${name}`);
    const title = busy ? `${what}, busy host` : what;
    const line = group.lines.get(title) ?? [];
    line.push(`${level === undefined ? "" : `${level} ${VARIED[row]}: `}${ratios.join(", ")}`);
    group.lines.set(title, line);
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

const whole = (value) => value.toLocaleString("en");
const ratio = (ours, theirs) => (theirs === 0 ? "more than nothing" : (ours / theirs).toFixed(2));
