// The main job: four processes work a ledger of payments through, with a lock per account in one
// SQLite file. One of them is killed while it holds a lock; another is stopped for longer than its
// lock lasts, and then goes on as if it still held it.
//
//   node demo/run.mjs [--without-locks]
//
// With --without-locks the same workers run without locks, nobody is killed or stopped, and the table
// shows what that does to the books. Exit code 0 only if everything came out right.

import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createDisplay } from "./display.mjs";
import { readLedger, uniquePayments } from "./ledger.mjs";
import { openStore } from "./store.mjs";
import { report } from "./report.mjs";
import { createTally } from "./tally.mjs";

const WORKERS = 4;
const TTL_MS = 1500;
const KILL_AT = 0.2;
const STOP_AT = 0.3;
const LIMIT_MS = 60_000;

const withoutLocks = process.argv.includes("--without-locks");
const ledger = readLedger();
const unique = uniquePayments(ledger).size;
const folder = mkdtempSync(join(tmpdir(), "syncguard-demo-"));
const tally = createTally(WORKERS);
const display = createDisplay(process.stdout, { tally, unique });
const children = new Map();
// Workers that were asked to stay inside their next lock, and what to do once they say they are.
const holding = new Map();
const began = Date.now();

// Whatever ends this process ends it by `end`.
let ending = false;
for (const [signal, number] of [
  ["SIGHUP", 1],
  ["SIGINT", 2],
  ["SIGTERM", 15],
]) {
  process.on(signal, () => void end(128 + number));
}
process.on("uncaughtException", (error) => fail(error.stack));

display.say(
  `${WORKERS} processes, ${ledger.length} ledger lines, a lock per account in one SQLite file`,
);
setTimeout(() => fail(`not done after ${LIMIT_MS / 1000} s`), LIMIT_MS).unref();
const plan = [
  { at: KILL_AT, start: killOne },
  { at: STOP_AT, start: stopOne },
];
if (withoutLocks) plan.length = 0;
await Promise.all(Array.from({ length: WORKERS }, (_, index) => runWorker(index + 1)));
display.stop();
const right = report({
  ledger,
  store: openStore(folder),
  tally,
  seconds: (Date.now() - began) / 1000,
  withoutLocks,
});
await end(right ? 0 : 1);

/** Resolves when the worker has ended as it should. */
function runWorker(worker) {
  return new Promise((resolve) => {
    const settings = { locks: join(folder, "locks.db"), folder, worker, workers: WORKERS };
    const argument = JSON.stringify({ ...settings, ttlMs: TTL_MS, withoutLocks });
    const program = fileURLToPath(new URL("worker.mjs", import.meta.url));
    const child = fork(program, [argument], { stdio: ["ignore", "inherit", "inherit", "ipc"] });
    children.set(worker, child);
    tally.workers.get(worker).pid = child.pid;
    child.on("message", (message) => {
      tally.note(worker, message);
      if (message.type === "holding") holding.get(worker)?.(message);
      if (message.type === "refused") {
        display.say(
          `worker ${worker}: late write to ${message.account} refused, ` +
            `fence ${short(message.fence)} < ${short(message.seen)}`,
        );
      }
      nextEvent();
    });
    child.on("exit", (code, signal) => {
      children.delete(worker);
      if (ending) return;
      const killed = tally.killed?.worker === worker && signal === "SIGKILL";
      tally.ended(worker, killed ? "killed" : "done");
      if (code !== 0 && !killed)
        return fail(`worker ${worker} ended with ${signal ?? `code ${code}`}`);
      resolve();
    });
  });
}

function nextEvent() {
  const [event] = plan;
  if (!event || tally.paid < unique * event.at) return;
  plan.shift();
  event.start();
}

/** kill -9 while worker 2 holds a lock. */
function killOne() {
  askToHold(2, ({ account, fence }) => {
    tally.killed = { worker: 2, account, fence, at: Date.now() };
    children.get(2).kill("SIGKILL");
    display.say(`worker 2: killed (SIGKILL) while it holds ${account}`);
    tally.onTakeover(tally.killed, ({ worker, afterMs }) => {
      display.say(`worker ${worker}: took ${account} over after ${(afterMs / 1000).toFixed(2)} s`);
    });
  });
}

/** Worker 3 stands still with a lock in its hands until somebody else has done its work, and then goes on. */
function stopOne() {
  askToHold(3, ({ account, fence, id }) => {
    tally.stopped = { worker: 3, account, fence, id, at: Date.now() };
    const child = children.get(3);
    child.kill("SIGSTOP");
    display.say(`worker 3: stopped (SIGSTOP) while it holds ${account}`);
    tally.workers.get(3).state = "stopped";
    tally.onPaidByOther(tally.stopped, (worker) => {
      display.say(`worker ${worker}: made its payment from ${account}; worker 3 goes on (SIGCONT)`);
      tally.workers.get(3).state = "working";
      child.send("continue");
      child.kill("SIGCONT");
    });
  });
}

function askToHold(worker, then) {
  holding.set(worker, (message) => {
    holding.delete(worker);
    then(message);
  });
  children.get(worker).send("hold");
}

function short(fence) {
  return fence.replace(/^0+/, "");
}

function fail(message) {
  display.stop();
  console.error(`demo: ${message}`);
  void end(1);
}

/**
 * Ends the workers, running or stopped, and removes the folder once they are gone: until then, one of
 * them may still make a file in it.
 */
async function end(code) {
  if (ending) return;
  ending = true;
  display.stop();
  const workers = [...children.values()];
  const exits = workers.map((child) => once(child, "exit"));
  for (const child of workers) child.kill("SIGKILL");
  await Promise.all(exits);
  rmSync(folder, { recursive: true, force: true });
  process.exit(code);
}
