// Several processes that want to lead, of which the leader is killed (SIGKILL), stopped for longer than its lock lasts (SIGSTOP), or
// told to end (SIGTERM), again and again, at moments that the seed decides.

import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { withinPatience } from "../frame/crew.mjs";
import { noteTo, nowMs } from "../frame/notes.mjs";
import { randomOf } from "../frame/seed.mjs";

const PROGRAM = fileURLToPath(new URL("member.mjs", import.meta.url));
/** How long a process stays stopped after another has begun to lead. */
const STOPPED_MS = 200;
/** More of those that are over soon. */
const FAULTS = ["SIGKILL", "SIGTERM", "SIGSTOP", "SIGTERM", "SIGTERM"];

/** Lets `members` processes lead for so many `seconds`, and notes what is done to them. */
export async function runCandidates(stage) {
  const { members, seconds, seed, crew, file } = stage;
  const candidates = new Candidates(stage);
  const random = randomOf(seed);
  const note = noteTo(file);
  await Promise.all(Array.from({ length: members }, () => candidates.add()));
  const endMs = nowMs() + seconds * 1_000;
  for (let turn = 0; nowMs() < endMs; turn += 1) {
    const leader = await candidates.leader();
    await sleep(100 + random() * 700);
    // It may have lost its lock by itself meanwhile.
    if (candidates.last !== leader.term) continue;
    const signal = FAULTS[turn % FAULTS.length];
    note(signal, await candidates.strike(leader, signal));
  }
  await crew.end("SIGTERM");
}

class Candidates {
  /** The term that has begun last. */
  last = 0;
  #stage;
  #leader;
  #count = 0;
  /** Resolves when a term begins. */
  #next = withResolvers();

  constructor(stage) {
    this.#stage = stage;
  }

  /** Starts a process; resolves when it campaigns. */
  async add() {
    const { crew, place, file, ttlMs } = this.#stage;
    this.#count += 1;
    const name = `m${this.#count}`;
    const ready = withResolvers();
    const onMessage = ({ event, term }) => {
      if (event === "ready") ready.resolve();
      if (event !== "start" || term <= this.last) return;
      this.last = term;
      this.#leader = { member, term };
      this.#next.resolve(this.#leader);
      this.#next = withResolvers();
    };
    const member = crew.start(PROGRAM, { name, place, file, ttlMs }, { onMessage });
    member.ended.then(({ failure }) => ready.reject(new Error(failure ?? `${name} has ended`)));
    await ready.promise;
  }

  /** Whoever leads, once somebody does. */
  async leader() {
    return this.#leader ?? (await withinPatience(this.#next.promise));
  }

  /** Does it to the leader, and waits until another leads; resolves to what was done when. */
  async strike({ member }, signal) {
    const { crew } = this.#stage;
    const next = withinPatience(this.#next.promise);
    const atMs = nowMs();
    crew.send(member, signal);
    const by = (await next).member.name;
    let contAtMs;
    if (signal === "SIGSTOP") {
      await sleep(STOPPED_MS);
      contAtMs = nowMs();
      crew.send(member, "SIGCONT");
    } else {
      await withinPatience(member.ended);
      await this.add();
    }
    return { atMs, member: member.name, by, contAtMs };
  }
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
