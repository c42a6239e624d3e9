// One of the processes of run.mjs. What it is to do stands in its argument, in JSON.

import { LockError } from "syncguard";
import { openStore } from "./stores.mjs";

const { store, keys, name, transactions, stops, guarded, ttlMs } = JSON.parse(process.argv[2]);
const { backend, add, close } = await openStore(store);
const report = { committed: [], refused: 0, failed: 0 };

/** Stops this process; the one that has started it lets it go on. */
async function stop() {
  await new Promise((resolve) => process.send("stopped", resolve));
  process.kill(process.pid, "SIGSTOP");
}

const all = Array.from({ length: stops }, (_, number) => Math.floor(((number + 0.5) * transactions) / stops)); // prettier-ignore
const isStopped = new Set(all);
for (let number = 0; number < transactions; number += 1) {
  const key = keys[Math.floor(Math.random() * keys.length)];
  const item = `${name}.${number}`;
  const held = await backend.lock(key, {
    ttlMs,
    acquisition: { timeoutMs: 120_000, retryDelayMs: 20, maxRetryDelayMs: 100 },
    onLost: () => undefined,
    onReleaseError: () => undefined,
  });
  try {
    const pause = isStopped.has(number) ? stop : async () => undefined;
    await add(held, key, item, { guarded, pause, where: number % 3 });
    report.committed.push(item);
  } catch (error) {
    if (error instanceof LockError && error.code === "LockLost") report.refused += 1;
    else if (guarded && isConflict(error)) report.failed += 1;
    else throw error;
  } finally {
    await held[Symbol.asyncDispose]();
  }
}
await close();
await new Promise((resolve) => process.send(report, resolve));
process.disconnect();

/** Whether the store has chosen somebody else's transaction: nothing of this one was written. */
function isConflict({ code }) {
  return code === "40001" || code === "40P01" || code === 10;
}
