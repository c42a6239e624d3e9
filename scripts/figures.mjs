// npm run figures: what the addon costs, measured here and now. Each figure is the median of several
// runs, with the smallest and the largest.

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "./lib/build.mjs";
import { measurePairs } from "./lib/pairs.mjs";
import { addon, platform, root } from "./lib/paths.mjs";
import { main } from "./lib/run.mjs";

const RUNS = 5;
const IMPORTS = 20;

await main(async () => {
  await build();
  const { createSqliteBackend } = await import("syncguard/sqlite");
  console.log(`${platform}, Node.js ${process.version}, ${cpus().length} × ${cpus()[0]?.model}`);

  const folder = mkdtempSync(join(tmpdir(), "syncguard-figures-"));
  try {
    for (const store of ["memory", "file"]) {
      const path = store === "memory" ? ":memory:" : join(folder, "locks.db");
      const backend = createSqliteBackend(path);
      for (const inFlight of [1, 64]) {
        await measurePairs(backend, inFlight, 300);
        const runs = [];
        for (let run = 0; run < RUNS; run += 1) {
          runs.push(await measurePairs(backend, inFlight, 1500));
        }
        const name = `SQLite ${store}, ${inFlight} in flight`;
        show(
          `${name}: pairs/s`,
          runs.map((run) => run.pairsPerSecond),
          0,
        );
        show(
          `${name}: main thread, µs CPU/pair`,
          runs.map((run) => run.mainCpuMicros),
          1,
        );
        show(
          `${name}: main thread, µs busy/pair`,
          runs.map((run) => run.mainBusyMicros),
          1,
        );
      }
      await backend.close();
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }

  show("import of syncguard (ESM), ms", importTimes(`await import("syncguard")`), 1);
  show("require of syncguard, ms", importTimes(`require("syncguard")`), 1);
  console.log(`size of the addon: ${(statSync(addon).size / 1024 / 1024).toFixed(2)} MiB`);
});

/** Milliseconds of the import alone, each in a process of its own. */
function importTimes(load) {
  const code = `const t = performance.now(); ${load}; console.log(performance.now() - t);`;
  const type = load.startsWith("await") ? "module" : "commonjs";
  return Array.from({ length: IMPORTS }, () =>
    Number(
      execFileSync(process.execPath, [`--input-type=${type}`, "--eval", code], {
        cwd: root,
        encoding: "utf8",
      }),
    ),
  );
}

function show(name, values, digits) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const median =
    sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  const [low, high] = [sorted[0], sorted.at(-1)].map((value) => value.toFixed(digits));
  console.log(`${name.padEnd(56)} ${median.toFixed(digits).padStart(8)}  (${low} to ${high})`);
}
