// Three machines with the same schedule. One is killed in the middle of its work, and another does it.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { startFleet } from "../lib/fleet.mjs";

const script = fileURLToPath(new URL("machine.mjs", import.meta.url));
let first;
let isKilled = false;
const fleet = startFleet(script, ["north", "south", "west"], {
  onLine: (name, line, machine) => {
    const [, due] = /^(\d+): begins/.exec(line) ?? [];
    if (due === undefined || isKilled) return;
    first ??= due;
    if (due === first) return; // may be over too soon: the machines have come in the middle of it
    isKilled = true;
    machine.kill("SIGKILL");
    console.log(`${name} gets SIGKILL`);
  },
});
await fleet.ended;
const file = join(fleet.folder, "runs");
const runs = existsSync(file) ? readFileSync(file, "utf8").trim().split("\n").map(Number) : [];
const isOnce = new Set(runs).size === runs.length;
const isEach = runs.every((due, at) => at === 0 || due - runs[at - 1] <= 1);
const [twice, missed] = [isOnce ? "none" : "SOME", isEach ? "none" : "SOME"];
console.log(`${runs.length} reports, ${twice} twice, ${missed} missed`);
process.exitCode = isOnce && isEach ? 0 : 1;
fleet.remove();
