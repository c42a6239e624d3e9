// npm run torture [-- BACKENDS SECONDS SEED]: several processes work on each store, some are stopped and killed, and
// what they saw is checked. The seed decides everything but the machine's own timing.

import { join } from "node:path";
import { stores } from "../bench/waiting/stores.mjs";
import { install, needCompilers } from "./lib/build.mjs";
import { target } from "./lib/paths.mjs";
import { main, must, run } from "./lib/run.mjs";
import { needServers } from "./lib/servers.mjs";

/** How the program names a store. */
const URLS = {
  redis: (at) => at,
  postgres: (at) => at,
  firestore: (at) => `firestore://${at}`,
  sqlite: (at) => `sqlite:${at}`,
};

await main(async () => {
  const [names = Object.keys(URLS).join(), seconds = "60", seed = String(Date.now() % 1_000_000)] =
    process.argv.slice(2);
  for (const name of names.split(",")) {
    if (!(name in URLS))
      throw new Error(`no such store: ${name} (${Object.keys(URLS).join(", ")})`);
  }
  await install();
  await needCompilers();
  await needServers();
  await must("cargo", ["build", "--profile", "torture", "--locked", "--package", "torture"], {
    quiet: true,
  });
  const program = join(target, "torture", "torture");
  let worst = 0;
  for (const name of names.split(",")) {
    const { place, server } = await stores[name]();
    try {
      console.log(`\n${name}, ${seconds} s`);
      const url = URLS[name](place.at);
      const { code } = await run(program, ["run", url, seconds, seed, "stop", "kill"]);
      worst = Math.max(worst, code);
    } finally {
      await server.stop();
    }
  }
  return worst;
});
