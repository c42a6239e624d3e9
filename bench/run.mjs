// npm run bench -- redis sqlite: measures what stands in bench/, here and now; without names, all of it.
// Figures of different runs are not to be compared: ratios within one run are.
//
//   --built          what is built already
//   --busy           on a busy host: a loop of the idle class on each core keeps it awake (Linux)
//   --runs N         how often each contender is measured
//   --seconds N      how long a sample is; of `alternatives`, the shortest
//   --tls            over TLS
//   --against PATH   beside another checkout that is built, as the contender "before"
//   --stores LIST    on these stores alone: redis,postgres
//   --rows LIST      these rows alone: pairs,http
//   --locks N        how many locks are held
//   --json FILE      where to write all samples, from which bench/alternatives/page.mjs writes the page

import { existsSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { build, install } from "../scripts/lib/build.mjs";
import { root } from "../scripts/lib/paths.mjs";
import { exitOnSignals, main } from "../scripts/lib/run.mjs";
import { needServers } from "../scripts/lib/servers.mjs";
import { complaint, keepAwake } from "./lib/busy.mjs";

/** Each suite, and which of the options it knows besides --built and --busy. */
const suites = {
  alternatives: {
    load: () => import("./alternatives/suite.mjs"),
    knows: ["runs", "seconds", "stores", "rows", "locks", "json"],
  },
  dashboard: { load: () => import("./dashboard/suite.mjs"), knows: ["seconds", "locks"] },
  emptied: { load: () => import("./emptied/suite.mjs"), knows: ["runs", "locks"] },
  firestore: {
    load: () => import("./firestore/suite.mjs"),
    knows: ["runs", "seconds", "against"],
  },
  gathering: {
    load: () => import("./waiting/gathering.mjs"),
    knows: ["runs", "seconds", "against", "stores"],
  },
  guards: { load: () => import("./postgres/guards.mjs"), knows: ["runs"] },
  holding: { load: () => import("./holding/suite.mjs"), knows: ["seconds", "locks"] },
  import: { load: () => import("./import/suite.mjs"), knows: ["runs", "seconds", "against"] },
  postgres: { load: () => import("./postgres/suite.mjs"), knows: ["runs", "seconds", "against"] },
  readers: {
    load: () => import("./waiting/readers.mjs"),
    knows: ["runs", "seconds", "locks", "stores"],
  },
  redis: { load: () => import("./redis/suite.mjs"), knows: ["runs", "seconds", "against", "tls"] },
  "redis-cluster": {
    load: () => import("./redis-cluster/suite.mjs"),
    knows: ["runs", "seconds", "against"],
  },
  sets: {
    load: () => import("./sets/suite.mjs"),
    knows: ["runs", "seconds", "against", "stores"],
  },
  sqlite: { load: () => import("./sqlite/suite.mjs"), knows: ["runs", "seconds", "against"] },
  waiting: {
    load: () => import("./waiting/suite.mjs"),
    knows: ["runs", "seconds", "against", "stores"],
  },
  workers: {
    load: () => import("./waiting/workers.mjs"),
    knows: ["runs", "seconds", "against", "stores"],
  },
};

await main(async () => {
  const text = { type: "string" };
  const flag = { type: "boolean" };
  const { values, positionals } = parseArgs({
    options: {
      ...{ built: flag, busy: flag, runs: text, seconds: text, tls: flag, against: text },
      ...{ stores: text, rows: text, locks: text, json: text },
    },
    allowPositionals: true,
  });
  const { built, busy = false, ...given } = values;
  const names = positionals.length > 0 ? positionals : Object.keys(suites);
  for (const name of names) {
    if (!Object.hasOwn(suites, name)) {
      throw new Error(`no benchmark ${name}; there are: ${Object.keys(suites).join(", ")}`);
    }
    const unknown = Object.keys(given).find((option) => !suites[name].knows.includes(option));
    if (unknown !== undefined) throw new Error(`${name} knows no --${unknown}`);
  }
  if (given.against !== undefined && !existsSync(join(given.against, "dist"))) {
    throw new Error(`--against: ${given.against} is not built`);
  }
  const options = {
    ...given,
    runs: positive("runs", given.runs),
    seconds: positive("seconds", given.seconds),
    locks: positive("locks", given.locks),
    stores: given.stores?.split(","),
    rows: given.rows?.split(","),
    against: given.against && resolve(given.against),
  };
  if (!built) await build();
  await needServers();
  if (names.includes("alternatives")) await install(join(root, "bench", "alternatives"));

  exitOnSignals();
  const [load] = loadavg();
  const end = busy ? await keepAwake() : () => undefined;
  const autogroups = busy ? complaint() : undefined;
  try {
    console.log(`${cpus().length} × ${cpus()[0]?.model}, Node.js ${process.version}`);
    console.log(
      busy
        ? "busy host: a loop of the idle class keeps each core awake"
        : "quiet host: cores sleep when nobody has work",
    );
    if (load > 0.5) console.log(`others use it (load ${load.toFixed(1)}): do not keep this`);
    if (autogroups !== undefined) console.log(autogroups);
    if (given.against) console.log(`before: ${options.against}`);
    for (const name of names) {
      console.log();
      await (await suites[name].load()).run({ ...options, busy, load });
    }
  } finally {
    end();
  }
});

function positive(name, text) {
  if (text === undefined) return undefined;
  const number = Number(text);
  if (!(number > 0) || (name !== "seconds" && !Number.isInteger(number))) {
    throw new Error(`--${name} must be a positive number`);
  }
  return number;
}
