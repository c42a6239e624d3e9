// Acquire and release on SQLite, in a file and in memory. There is nothing beside it but another build.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { comparePairs, contender } from "../lib/compare.mjs";
import { builds } from "../lib/built.mjs";
import { endMembers } from "../lib/members.mjs";

const IN_FLIGHT = [1, 4, 16, 64];
const CONTENDERS = new URL("contenders.mjs", import.meta.url);

export async function run({ against, runs, seconds }) {
  const folder = mkdtempSync(join(tmpdir(), "syncguard-bench-"));
  try {
    console.log("SQLite");
    const stores = [
      ["a file", (name) => join(folder, `${name}.db`)],
      ["memory", () => ":memory:"],
    ];
    const contenders = {};
    const ratios = [];
    for (const [store, pathOf] of stores) {
      const names = builds(against).map(([name, from]) => {
        const path = pathOf(name);
        contenders[`${name}, ${store}`] = contender(CONTENDERS, "syncguard", { from, path });
        return `${name}, ${store}`;
      });
      if (names.length > 1) ratios.push(names);
    }
    await comparePairs(contenders, IN_FLIGHT, { runs, seconds, ratios });
  } finally {
    endMembers();
    rmSync(folder, { recursive: true, force: true });
  }
}
