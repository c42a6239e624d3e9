// npm run test:busy [RUNS [COMMAND…]]: a command so often, npm test five times unless others are given, with a loop of normal priority on
// each core beside it. It takes a share of the processor from every test: what counts on one fails here.

import { spawn } from "node:child_process";
import { availableParallelism } from "node:os";
import { exitOnSignals, main, run } from "./lib/run.mjs";

// The loop is on another thread, so that it ends with this process, however that ends.
const LOOP = `
  new (require("node:worker_threads").Worker)("for (;;);", { eval: true });
  process.stdin.resume().on("end", () => process.exit());
`;

await main(async () => {
  const [times = "5", ...asked] = process.argv.slice(2);
  const [command, ...args] = asked.length > 0 ? asked : ["npm", "test", "--silent"];
  const runs = Number(times);
  if (!Number.isInteger(runs) || runs < 1)
    throw new Error("npm run test:busy -- [RUNS [COMMAND…]]");
  exitOnSignals();
  const loops = Array.from({ length: availableParallelism() }, () =>
    spawn(process.execPath, ["-e", LOOP], { stdio: ["pipe", "ignore", "inherit"] }),
  );
  const results = [];
  try {
    for (let number = 1; number <= runs; number += 1) {
      console.log(`── run ${number} of ${runs}, with ${loops.length} loops beside it ──`);
      const { code, output } = await run(command, args);
      results.push({ code, last: output.trimEnd().split("\n").at(-1) });
    }
  } finally {
    for (const loop of loops) loop.kill("SIGKILL");
  }
  for (const [index, { last }] of results.entries()) console.log(`run ${index + 1}: ${last}`);
  return results.some(({ code }) => code !== 0) ? 1 : 0;
});
