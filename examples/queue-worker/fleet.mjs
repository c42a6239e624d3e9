// Three workers and four jobs. One worker is killed while it works, one is asked to stop: the third does what they leave.

import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { startFleet } from "../lib/fleet.mjs";

const endings = { first: "SIGKILL", second: "SIGTERM" };
const script = fileURLToPath(new URL("worker.mjs", import.meta.url));
const fleet = startFleet(script, ["first", "second", "third"], {
  prepare(folder) {
    for (const name of ["jobs", "done"]) mkdirSync(join(folder, name));
    for (const number of [1, 2, 3, 4]) {
      writeFileSync(join(folder, "jobs", `job-${number}`), JSON.stringify({ takesMs: 700 }));
    }
  },
  onLine(name, line, child) {
    if (!line.startsWith("takes") || endings[name] === undefined) return;
    console.log(`${name} gets ${endings[name]}`);
    child.kill(endings[name]);
  },
});
await fleet.ended;
const [left, done] = ["jobs", "done"].map((name) => readdirSync(join(fleet.folder, name)).length);
console.log(`${done} jobs done, ${left} left`);
process.exitCode = done === 4 && left === 0 ? 0 : 1;
fleet.remove();
