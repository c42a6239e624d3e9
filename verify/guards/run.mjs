// Processes that add to sums in a store, one at a time for each sum, under locks in the same store. Some are stopped in the
// middle for longer than their locks last, and go on. Each addition reads the sum and a list, adds one and a name of its own,
// and writes both, as the set under a lock of Jepsen's tests does. In the end, every addition that was committed must be there.

import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { openStore } from "./stores.mjs";

const HOLDER = fileURLToPath(new URL("holder.mjs", import.meta.url));

/** After its end a lock is held for one second more, and then somebody else needs a moment to write. */
const PAST_THE_END_MS = 1_600;

/**
 * @param store - `{ name, at }`: which store, and where it is
 * @param how - `transactions` of all `processes` together, on `sums` sums; each process is stopped `stops` times; whether the
 *   transactions are `guarded`
 * @returns how many additions were `committed`, `refused` because the lock was gone, and `failed` otherwise; how many of the
 *   committed ones are `lost`, and how many are `twice` in a list; and how often a process was `stopped`
 */
export async function addUnderLocks(store, how) {
  const { transactions, processes, sums, stops, guarded, ttlMs = 250 } = how;
  const keys = Array.from({ length: sums }, (_, number) => `sum:${number}`);
  const opened = await openStore(store);
  const holders = [];
  try {
    await opened.prepare(keys);
    const each = Math.ceil(transactions / processes);
    for (let number = 0; number < processes; number += 1) {
      const name = `p${number}`;
      holders.push(hold({ store, keys, name, transactions: each, stops, guarded, ttlMs }));
    }
    const reports = await Promise.all(holders.map(({ report }) => report));
    const found = await Promise.all(keys.map((key) => opened.read(key)));
    return count(reports, found);
  } finally {
    // If one has failed, the others would wait for a server that is about to be stopped.
    for (const { kill } of holders) kill();
    await opened.close();
  }
}

/** One process: how to `kill` it, and its `report` once it has made its additions. */
function hold(task) {
  const child = fork(HOLDER, [JSON.stringify(task)]);
  const kill = () => child.kill("SIGKILL");
  process.once("exit", kill);
  const ended = async () => {
    const report = { stopped: 0 };
    child.on("message", (message) => {
      if (message === "stopped") {
        report.stopped += 1;
        setTimeout(() => child.kill("SIGCONT"), task.ttlMs + PAST_THE_END_MS);
      } else Object.assign(report, message);
    });
    const [code, signal] = await once(child, "exit");
    process.off("exit", kill);
    if (code !== 0) throw new Error(`a process has ended with ${code ?? signal}`);
    const { committed, refused, failed } = report;
    const made = committed && committed.length + refused + failed;
    if (made !== task.transactions) {
      throw new Error(`a process has ended after ${made ?? "an unknown number"} of ${task.transactions} transactions`); // prettier-ignore
    }
    return report;
  };
  return { kill, report: ended() };
}

function count(reports, found) {
  const sum = (name) => reports.reduce((all, report) => all + report[name], 0);
  const names = found.flatMap(({ items }) => items);
  const there = new Set(names);
  const committed = reports.flatMap((report) => report.committed);
  return {
    committed: committed.length,
    refused: sum("refused"),
    failed: sum("failed"),
    stopped: sum("stopped"),
    lost: committed.filter((name) => !there.has(name)).length,
    twice: names.length - there.size,
    // Each was counted and listed in one step.
    miscounted: found.filter(({ n, items }) => n !== items.length).length,
  };
}
