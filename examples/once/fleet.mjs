// Three machines with the same schedules: each job runs once a second, whichever machine comes first.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { startFleet } from "../lib/fleet.mjs";

const script = fileURLToPath(new URL("machine.mjs", import.meta.url));
const fleet = startFleet(script, ["north", "south", "west"]);
const codes = await fleet.ended;
const file = join(fleet.folder, "runs");
const runs = existsSync(file) ? readFileSync(file, "utf8").trim().split("\n") : [];
const isOnce = new Set(runs).size === runs.length;
console.log(`${runs.length} runs, ${isOnce ? "none twice" : "SOME TWICE"}`);
process.exitCode = isOnce && codes.every((code) => code === 0) ? 0 : 1;
fleet.remove();
