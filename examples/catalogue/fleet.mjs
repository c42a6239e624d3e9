// One process that rebuilds the catalogue, and three that read it. One reader is killed while it reads.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { startFleet } from "../lib/fleet.mjs";
import { PARTS } from "./parts.mjs";

const script = fileURLToPath(new URL("member.mjs", import.meta.url));
const readers = new Set();
let [builds, reads, torn] = [0, 0, 0];
let isDone = false;

const fleet = startFleet(script, ["rebuilder", "first", "second", "third"], {
  prepare(folder) {
    for (const part of PARTS) writeFileSync(join(folder, part), JSON.stringify({ build: 0 }));
  },
  onLine(name, line, child) {
    if (line.startsWith("rebuilds")) builds += 1;
    if (line.startsWith("reads")) reads += 1;
    if (line.startsWith("torn")) torn += 1;
    if (name === "rebuilder") isDone ||= line === "done";
    else readers.add(child);
    if (name === "first" && !child.killed) {
      console.log("first gets SIGKILL");
      child.kill("SIGKILL");
    }
    // Those who read go on until they are told, once: a second signal would end them at once.
    const reading = [...readers].filter((reader) => isDone && !reader.killed);
    for (const reader of reading) reader.kill("SIGTERM");
  },
});
await fleet.ended;
console.log(`${builds} builds, ${reads} reads, ${torn} torn`);
process.exitCode = torn === 0 ? 0 : 1;
fleet.remove();
