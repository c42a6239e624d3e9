// One of the processes that work the ledger through: for each payment, lock the account, look whether
// the payment was made, make it, write it down.

import { setTimeout as sleep } from "node:timers/promises";
import { withTelemetry } from "syncguard";
import { createSqliteBackend } from "syncguard/sqlite";
import { readLedger } from "./ledger.mjs";
import { openStore, StaleFence } from "./store.mjs";

const { locks, folder, worker, workers, ttlMs, withoutLocks } = JSON.parse(process.argv[2]);

const store = openStore(folder);
/** How often the store was asked for the last lock. */
let attempts = 0;
/** How many times the wait for the last lock was ended by the message that the lock was freed. */
let wakeups = 0;
const backend = withTelemetry(createSqliteBackend(locks), {
  onEvent: (event) => {
    if (event.type === "acquire") ({ attempts, wakeups } = event);
  },
});

// What the parent asks for: to stay inside the next lock until it says `continue`.
let askedToHold = false;
let goOn = () => {};
process.on("message", (message) => {
  if (message === "hold") askedToHold = true;
  if (message === "continue") goOn();
});
// The parent is gone.
const leave = () => process.exit(1);
process.on("disconnect", leave);

const ledger = readLedger();
const start = Math.floor(((worker - 1) * ledger.length) / workers);
const ordered = [...ledger.slice(start), ...ledger.slice(0, start)];

// Each worker goes through the whole ledger, from another place, until there is nothing left to do:
// so whatever one of them cannot finish is done by another.
for (;;) {
  const open = ordered.filter(({ id, account }) => !isPaid(store.read(account), id));
  if (open.length === 0) break;
  for (const payment of open) await payOnce(payment);
}
// Nothing else keeps the process alive: an open backend does not.
process.off("disconnect", leave);
process.send({ type: "done" }, () => process.disconnect());

async function payOnce(payment) {
  const { id, account } = payment;
  if (isPaid(store.read(account), id)) return;
  const held = withoutLocks ? unlocked() : await take(account);
  // A careful worker would stop here. This one goes on, and the fence refuses what it writes.
  held.signal?.addEventListener("abort", () => {
    tell({ type: "lost", id, account, fence: held.fence, code: held.signal.reason.code });
  });
  try {
    const state = store.read(account);
    if (isPaid(state, id)) return;
    await transfer(payment, held);
    store.write(account, state, payment, held.fence, worker);
    tell({ type: "paid", id, account, fence: held.fence });
  } catch (error) {
    if (!(error instanceof StaleFence)) throw error;
    tell({ type: "refused", id, account, fence: error.fence, seen: error.seen });
  } finally {
    // A release that the store did not answer in time goes on in the background.
    await held.release().catch(({ code }) => tell({ type: "unanswered", id, account, code }));
  }
}

async function take(account) {
  const before = performance.now();
  const held = await backend.lock(`account:${account}`, {
    ttlMs,
    acquisition: { timeoutMs: 20_000, maxRetries: 10_000, retryDelayMs: 10, backoff: "fixed" },
  });
  const waitedMs = performance.now() - before;
  // Telemetry comes after the operation it tells of.
  await new Promise(setImmediate);
  tell({
    type: "locked",
    account,
    fence: held.fence,
    waitedMs: attempts > 1 ? waitedMs : null,
    wakeups,
  });
  return held;
}

/** Stands for the call to the bank. */
async function transfer({ id, account }, { fence }) {
  await sleep(2 + Math.random() * 6);
  if (!askedToHold) return;
  askedToHold = false;
  const continued = new Promise((resolve) => (goOn = resolve));
  tell({ type: "holding", id, account, fence });
  await continued;
}

function unlocked() {
  return { fence: "000000000000001", release: async () => {} };
}

function isPaid(state, id) {
  return state.payments.includes(id);
}

function tell(message) {
  process.send(message);
}
