// Three tellers and four accounts. One teller is killed while it holds two locks.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { startFleet } from "../lib/fleet.mjs";
import { balancesOf, NAMES } from "./accounts.mjs";

let killed = false;
const script = fileURLToPath(new URL("teller.mjs", import.meta.url));
const fleet = startFleet(script, ["first", "second", "third"], {
  prepare: (folder) => writeFileSync(join(folder, "ledger"), ""),
  onLine(name, line, child) {
    if (name !== "first" || killed || !line.includes("is checked")) return;
    killed = true;
    console.log("first gets SIGKILL");
    child.kill("SIGKILL");
  },
});
await fleet.ended;
const ledger = readFileSync(join(fleet.folder, "ledger"), "utf8");
// Throws if a rule was broken at any time.
const balances = [...balancesOf(ledger).values()].map(({ balance }) => balance);
const sum = balances.reduce((total, balance) => total + balance, 0);
console.log(`${ledger.split("\n").length - 1} transfers, ${sum} in the accounts, no rule broken`);
process.exitCode = sum === NAMES.length * 100 ? 0 : 1;
fleet.remove();
