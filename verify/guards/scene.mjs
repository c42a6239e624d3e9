// npm run guards [-- STORES TRANSACTIONS PROCESSES]: processes that add to sums in a store, one at a time for each sum, under locks in the same
// store. Some are stopped in the middle for longer than their locks last, and go on. Each addition reads the sum and a list, adds
// one and a name of its own, and writes both, as the set under a lock of Jepsen's tests does. In the end, every addition that was
// committed must be there. With guards, nothing may be lost; without, the same run shows what is.

import { fileURLToPath } from "node:url";
import { noteTo } from "../frame/notes.mjs";
import { openStore } from "./stores.mjs";

const HOLDER = fileURLToPath(new URL("holder.mjs", import.meta.url));

/** After its end a lock is held for one second more, and then somebody else needs a moment to write. */
const PAST_THE_END_MS = 1_600;

/** `transactions` of all `processes` together, on `sums` sums; each process is stopped `stops` times. */
export const additions = {
  stores: ["postgres", "firestore", "redis"],
  settings: { transactions: 10_000, processes: 8, sums: 4, stops: 12, ttlMs: 250 },
  cases: (store) => [
    { name: `${store}, guarded`, store, guarded: true },
    { name: `${store}, not guarded`, store, guarded: false },
  ],
  run: addUnderLocks,
  judge,
};

async function addUnderLocks(stage) {
  const { place, transactions, processes, sums, crew, file } = stage;
  const keys = Array.from({ length: sums }, (_, number) => `sum:${number}`);
  const note = noteTo(file);
  const opened = await openStore(place);
  try {
    await opened.prepare(keys);
    const task = { ...stage, crew: undefined, keys, transactions: Math.ceil(transactions / processes) };
    const names = Array.from({ length: processes }, (_, number) => `p${number}`);
    await Promise.all(names.map((name) => hold(crew, { ...task, name })));
    for (const key of keys) note("found", await opened.read(key));
  } finally {
    // If one has failed, the others would wait for a server that is about to be stopped.
    await crew.end("SIGKILL");
    await opened.close();
  }
}

/** One process, which asks to be woken once it has stopped itself. */
async function hold(crew, task) {
  const wake = () => setTimeout(() => crew.send(member, "SIGCONT"), task.ttlMs + PAST_THE_END_MS);
  const member = crew.start(HOLDER, task, { onMessage: wake });
  const { failure } = await member.ended;
  if (failure !== undefined) throw new Error(failure);
}

/**
 * How many additions were `committed`, `refused` because the lock was gone, and `failed` otherwise; how many of the committed ones
 * are `lost`, and how many are `twice` in a list; and how often a process was `stopped`.
 */
function judge(notes, { transactions, processes, guarded }) {
  const of = (name) => notes.filter(({ event }) => event === name);
  const found = of("found");
  const names = found.flatMap(({ items }) => items);
  const there = new Set(names);
  const committed = of("committed");
  const figures = {
    committed: committed.length,
    refused: of("refused").length,
    failed: of("failed").length,
    stopped: of("stopped").length,
    lost: committed.filter(({ item }) => !there.has(item)).length,
    twice: names.length - there.size,
    // Each was counted and listed in one step.
    miscounted: found.filter(({ n, items }) => n !== items.length).length,
  };
  const wanted = Math.ceil(transactions / processes) * processes;
  return { figures, violations: violationsOf(figures, wanted, guarded) };
}

function violationsOf({ committed, refused, failed, stopped, ...wrong }, wanted, guarded) {
  const made = committed + refused + failed;
  const violations = [];
  if (made !== wanted) violations.push(`the processes have made ${made} of ${wanted} transactions`);
  if (stopped === 0) violations.push("no process was stopped");
  if (!guarded && wrong.lost === 0) violations.push("without guards, nothing was lost: this run shows nothing"); // prettier-ignore
  if (!guarded) return violations;
  const counts = Object.entries(wrong).filter(([, count]) => count > 0);
  return [...violations, ...counts.map(([what, count]) => `${count} were ${what}`)];
}
