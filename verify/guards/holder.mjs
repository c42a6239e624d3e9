// One of the processes of scene.mjs.

import { LockError } from "syncguard";
import { noteTo } from "../frame/notes.mjs";
import { openStore } from "./stores.mjs";

const { place, file, keys, name, transactions, stops, guarded, ttlMs } = JSON.parse(process.argv[2]);
const note = noteTo(file, name);
const { backend, add, close } = await openStore(place);

/** Stops this process; the one that has started it lets it go on. */
async function stop() {
  note("stopped");
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
    note("committed", { item });
  } catch (error) {
    if (error instanceof LockError && error.code === "LockLost") note("refused");
    else if (guarded && isConflict(error)) note("failed");
    else throw error;
  } finally {
    await held[Symbol.asyncDispose]();
  }
}
await close();
process.disconnect();

/** Whether the store has chosen somebody else's transaction: nothing of this one was written. */
function isConflict({ code }) {
  return code === "40001" || code === "40P01" || code === 10;
}
