// npm run guards [-- STORES TRANSACTIONS PROCESSES] [--record]: processes that are stopped in the middle of their transactions, with
// guards and without (verify/guards/scene.mjs). With guards, nothing may be lost; without, the same run shows what is.

import { build } from "./lib/build.mjs";
import { recording } from "./lib/records.mjs";
import { guardRow } from "./lib/reports.mjs";
import { exitOnSignals, main } from "./lib/run.mjs";
import { needServers } from "./lib/servers.mjs";

await main(async () => {
  const { words, record } = recording(process.argv.slice(2));
  await needServers();
  await build();
  exitOnSignals();
  // They need packages, which are there only now.
  const { play } = await import("../verify/frame/play.mjs");
  const { additions } = await import("../verify/guards/scene.mjs");
  const code = await play(additions, words, async ({ which, seconds, found }) => {
    const run = { store: which.store, guards: which.guarded ? "with" : "none", seconds };
    await record("runs", "Guards", [{ ...run, ...guardRow(found.figures) }]);
  });
  console.log(code === 0 ? "All right: nothing was lost with guards." : "WRONG");
  return code;
});
