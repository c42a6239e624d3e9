// What is measured: for each row, who takes part, and one sample of one contender.

import autocannon from "autocannon";
import { startMember as start } from "../lib/members.mjs";
import { contenders, on } from "./contenders.mjs";
import { CONNECTIONS, CONTENDED_IN_FLIGHT, HANDED_SLOTS, HOLD_MS, HOLDING_TTL_MS, IN_FLIGHT, KEYS, PROCESSES, secondsOf, SET_SIZES, SETS_IN_FLIGHT, SLOTS, SLOTS_IN_FLIGHT, WAITERS, WARM_MS } from "./settings.mjs"; // prettier-ignore

const TASKS = new URL("tasks.mjs", import.meta.url);

/** Starts a process of the contender `id` on the store at `place`. */
export const startMember = (id, place) => start(id, TASKS, id, place);

/**
 * Each row: `who` takes part; `variants` are measured one after the other in each run; `start` prepares a contender, what
 * it resolves to is given to `sample`, and its `stop` ends it.
 */
export const rows = {
  pairs: {
    who: on("redis", "postgres", "firestore"),
    variants: IN_FLIGHT.map((inFlight) => ({ inFlight })),
    start: alone,
    sample: (member, { inFlight }, { seconds }) =>
      member.ask("pairs", { inFlight, ms: seconds * 1_000, warmMs: WARM_MS }),
  },

  sets: {
    who: ["redis/syncguard", "redis/redlock-universal"],
    variants: SET_SIZES.map((keys) => ({ keys })),
    start: alone,
    sample: (member, { keys }, { seconds }) =>
      member.ask("sets", { keys, inFlight: SETS_IN_FLIGHT, ms: seconds * 1_000, warmMs: WARM_MS }),
  },

  slots: {
    who: ["redis/syncguard", "redis/redis-semaphore"],
    variants: SLOTS.flatMap((slots) => SLOTS_IN_FLIGHT.map((inFlight) => ({ slots, inFlight }))),
    start: alone,
    sample: (member, { slots, inFlight }, { seconds }) =>
      member.ask("slots", { slots, inFlight, ms: seconds * 1_000, warmMs: WARM_MS }),
  },

  handOffSlots: {
    who: ["redis/syncguard", "redis/redis-semaphore"],
    variants: [{ waiters: WAITERS, slots: HANDED_SLOTS }],
    start: crowd,
    sample: takingTurns,
  },

  contended: {
    who: on("redis", "postgres", "firestore"),
    variants: [{ inFlight: CONTENDED_IN_FLIGHT }],
    start: alone,
    sample: (member, { inFlight }, { seconds }) =>
      member.ask("contended", { inFlight, ms: seconds * 1_000, warmMs: WARM_MS }),
  },

  handOff: {
    who: on("redis", "postgres", "firestore"),
    variants: [{ waiters: WAITERS }],
    start: crowd,
    sample: takingTurns,
  },

  holding: {
    who: Object.keys(contenders).filter((id) => contenders[id].held !== undefined),
    variants: [{}],
    start: alone,
    async sample(member, _, { seconds, locks, servers }) {
      const { admin } = servers.redis;
      await member.ask("hold", { locks, ttlMs: HOLDING_TTL_MS });
      const calls = await commands(admin);
      const measured = secondsOf("holding", seconds);
      const seen = await member.ask("holding", { ms: measured * 1_000 });
      const extensions = ((await commands(admin)) - calls) / measured;
      const there = await keysLike(admin, contenders[member.id].held);
      await member.ask("letGo");
      return { ...seen, locks, extensions, gone: locks - there };
    },
  },

  http: {
    who: on("redis", "postgres"),
    variants: CONNECTIONS.map((connections) => ({ connections })),
    async start(id, place) {
      const member = startMember(id, place);
      const port = await member.ask("serve", { keys: KEYS });
      const stop = async () => {
        await member.ask("endServing");
        await member.stop();
      };
      return { member, url: `http://127.0.0.1:${port}`, stop };
    },
    async sample({ member, url }, { connections }, { seconds }) {
      await requests(member, url, { connections, duration: 0.3 });
      await member.ask("served");
      const duration = secondsOf("http", seconds);
      const { rate, times } = await requests(member, url, { connections, duration });
      if (times.length === 0) throw new Error(`${member.id} answered no request`);
      const at = (share) => times[Math.floor(times.length * share)];
      return { rate, p50: at(0.5), p99: at(0.99), ...(await member.ask("served")) };
    },
  },
};

/** Requests as fast as they are answered: how many a second, and the milliseconds of each in order. */
async function requests(member, url, load) {
  const times = [];
  const run = autocannon({ url, ...load, sampleInt: 100 });
  // Its own percentiles are whole milliseconds.
  run.on("response", (_client, _status, _bytes, ms) => times.push(ms));
  const seen = await run;
  const failed = seen.errors + seen.non2xx;
  if (failed > 0) throw new Error(`${member.id}: ${failed} requests failed`);
  return { rate: times.length / seen.duration, times: times.sort((a, b) => a - b) };
}

/** One process. */
async function alone(id, place) {
  const member = startMember(id, place);
  await member.ask("warm");
  return member;
}

/** Several processes. */
async function crowd(id, place) {
  const members = Array.from({ length: PROCESSES }, () => startMember(id, place));
  await Promise.all(members.map((member) => member.ask("warm")));
  return { members, stop: () => Promise.all(members.map((member) => member.stop())) };
}

async function takingTurns({ members }, { waiters, slots }, { seconds }) {
  const ms = secondsOf("handOff", seconds) * 1_000;
  const task = { waiters: waiters / PROCESSES, holdMs: HOLD_MS, ms, slots };
  const reports = await Promise.all(members.map((member) => member.ask("waiters", task)));
  return handedOver(reports, ms, slots);
}

/** For how much of the time somebody held the lock, or each of its slots, and how long they waited for it. */
export function handedOver(reports, ms, slots = 1) {
  const holds = reports.flatMap((report) => report.holds).sort(([a], [b]) => a - b);
  /** When those end that hold it now. */
  let ends = [];
  for (const [from, to] of holds) {
    ends = ends.filter((end) => end > from);
    if (ends.push(to) > slots) {
      throw new Error(slots === 1 ? "two held one lock" : `more than ${slots} held a slot`);
    }
  }
  const waits = reports.flatMap((report) => report.waits).sort((a, b) => a - b);
  const elapsed = Math.max(ms, holds.at(-1)[1] - holds[0][0]);
  return {
    share: holds.reduce((sum, [from, to]) => sum + to - from, 0) / elapsed / slots,
    rate: (holds.length * 1_000) / elapsed,
    p50: waits[waits.length >> 1],
    p99: waits[Math.floor(waits.length * 0.99)],
    longest: waits.at(-1),
  };
}

/** How many scripts a Redis server has run: every extension is one. */
async function commands(admin) {
  const stats = await admin.info("commandstats");
  return [...stats.matchAll(/^cmdstat_(?:evalsha|eval):calls=(\d+)/gm)].reduce(
    (sum, [, calls]) => sum + Number(calls),
    0,
  );
}

async function keysLike(admin, pattern) {
  let found = 0;
  for await (const keys of admin.scanStream({ match: pattern, count: 10_000 })) {
    found += keys.length;
  }
  return found;
}
