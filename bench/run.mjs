// npm run bench -- redis: measures what stands in bench/, here and now. With --built, what is built already.
// Figures of different runs are not to be compared: ratios within one run are.

import { parseArgs } from "node:util";
import { build } from "../scripts/lib/build.mjs";
import { main } from "../scripts/lib/run.mjs";
import { needServers } from "../scripts/lib/servers.mjs";

const suites = {
  firestore: () => import("./firestore/suite.mjs"),
  holding: () => import("./holding/suite.mjs"),
  postgres: () => import("./postgres/suite.mjs"),
  redis: () => import("./redis/suite.mjs"),
  "redis-cluster": () => import("./redis-cluster/suite.mjs"),
  waiting: () => import("./waiting/suite.mjs"),
};

await main(async () => {
  const { values, positionals } = parseArgs({
    options: { built: { type: "boolean" } },
    allowPositionals: true,
  });
  const names = positionals.length > 0 ? positionals : Object.keys(suites);
  for (const name of names) {
    if (!Object.hasOwn(suites, name)) {
      throw new Error(`no benchmark ${name}; there are: ${Object.keys(suites).join(", ")}`);
    }
  }
  if (!values.built) await build();
  await needServers();
  for (const name of names) await (await suites[name]()).run();
});
