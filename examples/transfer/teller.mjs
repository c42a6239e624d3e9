// A teller: moves money from one account to another, under the locks of both.

import { appendFile, readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { lock } from "syncguard";
import { balancesOf, LIMIT, NAMES } from "./accounts.mjs";

const [name, folder] = process.argv.slice(2);
// Stands for a database, in which a transfer is one transaction.
const ledger = join(folder, "ledger");

const stopping = new AbortController();
process.once("SIGTERM", () => stopping.abort());

const REASONS = {
  Aborted: "stopped",
  ABORT_ERR: "stopped, or a lock was lost: nothing was written",
  AcquisitionTimeout: "the accounts were busy",
  LockLost: "a lock was lost: nothing was written",
};

for (let number = 1; number <= 10 && !stopping.signal.aborted; number += 1) {
  const from = pick(NAMES);
  const to = pick(NAMES.filter((one) => one !== from));
  const id = `${name}-${number}`;
  try {
    await lock((locks) => transfer({ id, from, to, amount: 60 }, locks), {
      // Both or neither, in whatever order they are named.
      key: [`account:${from}`, `account:${to}`],
      // So soon others have the accounts again after a teller has died.
      ttlMs: 1_000,
      autoExtend: true,
      signal: stopping.signal,
      acquisition: { timeoutMs: 20_000, maxRetries: 1_000 },
    });
  } catch (error) {
    console.log(`${id}: ${REASONS[error.code] ?? error.message}`);
  }
}
console.log(stopping.signal.aborted ? "stopped" : "done");

async function transfer({ id, from, to, amount }, { fences, signal }) {
  const accounts = balancesOf(await readFile(ledger, "utf8"));
  const [source, target] = [accounts.get(from), accounts.get(to)];
  if (source.balance < amount || target.balance + amount > LIMIT) {
    return console.log(`${id}: not from ${from} to ${to}: too little, or too much`);
  }
  console.log(`${id} is checked`);
  await sleep(10, undefined, { signal }); // the work, which ends when one of the locks is lost
  // Each account has a fence of its own. A database checks them in the transaction that writes.
  const own = { [from]: fences.get(`account:${from}`), [to]: fences.get(`account:${to}`) };
  if (own[from] < source.fence || own[to] < target.fence) throw new Error("another was faster");
  await appendFile(ledger, `${JSON.stringify({ id, from, to, amount, fences: own })}\n`);
  console.log(`${id}: ${amount} from ${from} to ${to}`);
}

function pick(names) {
  return names[Math.floor(Math.random() * names.length)];
}
