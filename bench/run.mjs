// npm run bench -- redis: measures what stands in bench/, here and now. With --built, what is built already.
// Figures of different runs are not to be compared: ratios within one run are.

import { join } from "node:path";
import { parseArgs } from "node:util";
import { build, install } from "../scripts/lib/build.mjs";
import { root } from "../scripts/lib/paths.mjs";
import { main } from "../scripts/lib/run.mjs";
import { needServers } from "../scripts/lib/servers.mjs";

const suites = {
  alternatives: () => import("./alternatives/suite.mjs"),
  firestore: () => import("./firestore/suite.mjs"),
  holding: () => import("./holding/suite.mjs"),
  postgres: () => import("./postgres/suite.mjs"),
  redis: () => import("./redis/suite.mjs"),
  "redis-cluster": () => import("./redis-cluster/suite.mjs"),
  waiting: () => import("./waiting/suite.mjs"),
};

await main(async () => {
  const { values, positionals } = parseArgs({
    options: {
      built: { type: "boolean" },
      // For `alternatives`: how often, seconds of the shortest sample, locks that are held, and where to write it all.
      runs: { type: "string" },
      seconds: { type: "string" },
      locks: { type: "string" },
      json: { type: "string" },
    },
    allowPositionals: true,
  });
  const names = positionals.length > 0 ? positionals : Object.keys(suites);
  for (const name of names) {
    if (!Object.hasOwn(suites, name)) {
      throw new Error(`no benchmark ${name}; there are: ${Object.keys(suites).join(", ")}`);
    }
  }
  const options = {
    runs: positive("runs", values.runs),
    seconds: positive("seconds", values.seconds),
    locks: positive("locks", values.locks),
    json: values.json,
  };
  if (!values.built) await build();
  await needServers();
  if (names.includes("alternatives")) await install(join(root, "bench", "alternatives"));
  for (const name of names) await (await suites[name]()).run(options);
});

function positive(name, text) {
  if (text === undefined) return undefined;
  const number = Number(text);
  if (!(number > 0) || (name !== "seconds" && !Number.isInteger(number))) {
    throw new Error(`--${name} must be a positive number`);
  }
  return number;
}
