// Several processes that want to lead, of which the leader is killed (SIGKILL), stopped for longer than its lock lasts (SIGSTOP), or
// told to end (SIGTERM), again and again, at moments that the seed decides.

import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { nowMs } from "./clock.mjs";

const PROGRAM = fileURLToPath(new URL("member.mjs", import.meta.url));
/** A hand-over that takes longer than this has not happened. */
const PATIENCE_MS = 60_000;
/** How long a process stays stopped after another has begun to lead. */
const STOPPED_MS = 200;
/** More of those that are over soon. */
const FAULTS = ["SIGKILL", "SIGTERM", "SIGSTOP", "SIGTERM", "SIGTERM"];

/**
 * Lets them lead on the store at `place` for so many seconds.
 *
 * @returns the history: what each process has seen, and what was done to them, in the order of time
 */
export async function runCandidates({ place, members, seconds, seed, ttlMs }) {
  const folder = mkdtempSync(join(tmpdir(), "syncguard-leader-"));
  const file = join(folder, "history");
  writeFileSync(file, "");
  const candidates = new Candidates(place, file, ttlMs);
  const random = randomOf(seed);
  const faults = [];
  try {
    await Promise.all(Array.from({ length: members }, () => candidates.add()));
    const endMs = nowMs() + seconds * 1_000;
    for (let turn = 0; nowMs() < endMs; turn += 1) {
      const leader = await candidates.leader();
      await sleep(100 + random() * 700);
      // It may have lost its lock by itself meanwhile.
      if (candidates.last !== leader.term) continue;
      faults.push(await candidates.strike(leader, FAULTS[turn % FAULTS.length]));
    }
    await candidates.end();
    const lines = readFileSync(file, "utf8").split("\n").filter(Boolean);
    return [...lines.map((line) => JSON.parse(line)), ...faults].sort((a, b) => a.atMs - b.atMs);
  } finally {
    await candidates.kill();
    rmSync(folder, { recursive: true, force: true });
  }
}

class Candidates {
  /** The term that has begun last. */
  last = 0;
  #children = new Map();
  #leader;
  #count = 0;
  /** Resolves when a term begins. */
  #next = withResolvers();

  constructor(place, file, ttlMs) {
    this.start = (name) =>
      fork(PROGRAM, [name, JSON.stringify(place), file, String(ttlMs)], {
        stdio: ["ignore", "inherit", "inherit", "ipc"],
      });
  }

  /** Starts a process; resolves when it campaigns. */
  async add() {
    this.#count += 1;
    const name = `m${this.#count}`;
    const child = this.start(name);
    this.#children.set(name, child);
    const ready = withResolvers();
    child.on("message", ({ event, term }) => {
      if (event === "ready") ready.resolve();
      if (event !== "start" || term <= this.last) return;
      this.last = term;
      this.#leader = { name, child, term };
      this.#next.resolve(this.#leader);
      this.#next = withResolvers();
    });
    child.once("exit", () => {
      this.#children.delete(name);
      ready.reject(new Error(`${name} has ended`));
    });
    await ready.promise;
  }

  /** Whoever leads, once somebody does. */
  async leader() {
    return this.#leader ?? (await inTime(this.#next.promise));
  }

  /** Does it to the leader, and waits until another leads. */
  async strike({ name, child }, signal) {
    const next = inTime(this.#next.promise);
    const atMs = nowMs();
    child.kill(signal);
    const { name: by } = await next;
    let contAtMs;
    if (signal === "SIGSTOP") {
      await sleep(STOPPED_MS);
      contAtMs = nowMs();
      child.kill("SIGCONT");
    } else {
      if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
      await this.add();
    }
    return { atMs, event: signal, member: name, by, contAtMs };
  }

  /** Tells all to end, and waits for that. */
  async end() {
    const exits = [...this.#children.values()].map((child) => once(child, "exit"));
    for (const child of this.#children.values()) child.kill("SIGTERM");
    await inTime(Promise.all(exits));
  }

  async kill() {
    const exits = [...this.#children.values()].map((child) => once(child, "exit"));
    for (const child of this.#children.values()) child.kill("SIGKILL");
    await Promise.all(exits);
  }
}

async function inTime(promise) {
  const late = sleep(PATIENCE_MS, undefined, { ref: false }).then(() => {
    throw new Error(`nothing has happened for ${PATIENCE_MS} ms`);
  });
  late.catch(() => undefined);
  return await Promise.race([promise, late]);
}

function withResolvers() {
  let resolve;
  let reject;
  const promise = new Promise((onResolve, onReject) => {
    resolve = onResolve;
    reject = onReject;
  });
  promise.catch(() => undefined);
  return { promise, resolve, reject };
}

/** Numbers from 0 to 1 that the seed decides (mulberry32). */
function randomOf(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
