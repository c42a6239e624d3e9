// Three instances. The first leader is killed, the second told to stop, and so is the third when it has led.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { startFleet } from "../lib/fleet.mjs";

const endings = ["SIGKILL", "SIGTERM", "SIGTERM"];
const leaders = new Set();
const script = fileURLToPath(new URL("instance.mjs", import.meta.url));
const fleet = startFleet(script, ["north", "south", "west"], {
  onLine(name, line, child) {
    if (!line.startsWith("round") || leaders.has(name)) return;
    leaders.add(name);
    const ending = endings[leaders.size - 1];
    console.log(`${name} gets ${ending}`);
    child.kill(ending);
  },
});
await fleet.ended;
const fences = readFileSync(join(fleet.folder, "rounds"), "utf8").trim().split("\n");
const inOrder = fences.every((fence, index) => index === 0 || fence >= fences[index - 1]);
const terms = new Set(fences).size;
console.log(`${terms} terms, rounds ${inOrder ? "in order" : "OUT OF ORDER"}`);
process.exitCode = terms === 3 && inOrder ? 0 : 1;
fleet.remove();
