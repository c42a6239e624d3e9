import type { Command } from "../command.js";
import type { Values } from "../values.js";
import { type Check, type Facts, fail, ok, warn } from "../doctor/check.js";
import { judgeClock } from "../doctor/clock.js";
import { formatDuration } from "../duration.js";
import { troubleOf } from "../../inspection/trouble.js";
import { Exit } from "../exit.js";
import { type Output, printable, type Style } from "../output.js";
import { direct } from "../../inspection/direct.js";
import { type Backend, type Target, withBackend } from "../store.js";
import { mayNotRelease } from "../doctor/redis.js";
import { STORES } from "../stores.js";
import type { Failure } from "../../native/outcome.js";

/**
 * The lock that is tried. Always the same: stores keep a fence counter of each key for ever. Another doctor may hold it for a
 * moment.
 */
const KEY = "syncguard:doctor";
const TTL_MS = 10_000;

const ROUND_TRIPS = 7;
/** From here on, a round trip is long for a lock. */
const SLOW_MS = 100;

export const doctor: Command = {
  name: "doctor",
  summary: "find out whether locks work here, and what to fix",
  operands: [],
  description:
    "Connects, looks at the server and its settings, measures round trips and clocks, and takes, extends and releases a lock on\n" +
    `the key ${KEY}. Nothing is changed but that lock and its fence.`,
  options: {},
  examples: [
    ["syncguard doctor", "everything that is known of the store"],
    ["syncguard doctor --json | jq '.checks[] | select(.status != \"ok\")'", "what is not right"],
  ],
  exits: [["1", "a check has failed; warnings do not count"]],
  run: async ({ values, out }) =>
    await withBackend(values, out, async (backend, target) => {
      const checks = await examine(backend, target, values);
      const isWell = checks.every(({ status }) => status !== "fail");
      const { kind, description } = target;
      out.result({ ok: isWell, store: kind, checks }, () => report(description, checks, out));
      return isWell ? Exit.OK : Exit.NO;
    }),
};

async function examine(backend: Backend, target: Target, values: Values): Promise<Check[]> {
  let nodes: Node[];
  try {
    nodes = await readFacts(backend);
  } catch (error) {
    return [failure("connection", error)];
  }
  const { transport } = backend;
  const way = transport === undefined ? "" : `: ${transport.way}, ${transport.reason}`;
  const checks = [ok("connection", `connected${way}`)];
  for (const { node, facts } of nodes) {
    const prefix = node === "" ? "" : `${node}: `;
    for (const check of STORES[target.kind].judge(facts, values)) {
      checks.push({ ...check, message: prefix + check.message });
    }
  }
  checks.push(...(await clock(backend, target)));
  // What is known to fail need not be tried for seconds.
  const fails = ({ name, status }: Check) =>
    status === "fail" && (name === "schema" || name === "writable");
  if (nodes.some(({ facts }) => mayNotRelease(facts))) {
    const message = "no lock was taken, because the user could not release it";
    checks.push(fail("operations", message, "give the right that is missing"));
  } else if (!checks.some(fails)) {
    checks.push(...(await operations(backend, target)));
  }
  return checks;
}

type Node = { node: string; facts: Facts };

async function readFacts(backend: Backend): Promise<Node[]> {
  const { text } = await direct(backend)("", undefined, (store) => store.facts());
  return JSON.parse(text) as Node[];
}

/** How far this machine's clock is from the server's. On a connection that is there, so that it is exact. */
async function clock(backend: Backend, { kind }: Target): Promise<Check[]> {
  const checks: Check[] = [];
  try {
    const startedMs = Date.now();
    const nodes = await readFacts(backend);
    const middleMs = (startedMs + Date.now()) / 2;
    for (const { node, facts } of nodes) {
      if (typeof facts.serverTimeMs !== "number") continue;
      const check = judgeClock(facts.serverTimeMs - middleMs, kind === "firestore");
      checks.push(node === "" ? check : { ...check, message: `${node}: ${check.message}` });
    }
  } catch (error) {
    checks.push(failure("clock", error));
  }
  return checks;
}

/** Whether locks can be taken, seen, extended and released: what rights there are shows best when they are used. */
async function operations(backend: Backend, { kind }: Target): Promise<Check[]> {
  const checks: Check[] = [];
  let step = "acquire";
  try {
    const held = await backend.lock(KEY, { ttlMs: TTL_MS, owner: "syncguard doctor" });
    try {
      step = "look up";
      const roundTripsMs: number[] = [];
      for (let count = 0; count < ROUND_TRIPS; count += 1) {
        const startedMs = performance.now();
        await backend.lookup({ key: KEY });
        roundTripsMs.push(performance.now() - startedMs);
      }
      step = "extend";
      const extended = await held.extend(TTL_MS);
      step = "release";
      const wakeUp = kind === "redis" ? await listen(backend) : undefined;
      const released = await held.release();
      if (wakeUp !== undefined) checks.push(await wakeUp());
      if (!extended.ok || !released.ok) {
        const fix = "run it again: somebody may have force-released the lock";
        checks.push(fail("operations", "the lock was gone while it was held", fix));
      } else {
        checks.push(ok("operations", `acquire, look up, extend and release; fence ${held.fence}`));
      }
      checks.push(roundTrip(roundTripsMs));
    } finally {
      await held.release();
    }
  } catch (error) {
    const check = failure("operations", error);
    checks.push({ ...check, message: `cannot ${step}: ${check.message}` });
  }
  return checks;
}

/** How long a message about a release may take. Without messages, whoever waits asks again after up to so long. */
const WAKE_UP_MS = 2_000;

/** Listens for the release of the lock, and gives what judges whether that was heard; nothing where nobody is told. */
async function listen(backend: Backend): Promise<(() => Promise<Check>) | undefined> {
  const name = "wake-ups";
  const polls = "whoever waits asks again, and gets a lock up to some seconds late";
  const next = async (heard: (signal: AbortSignal) => Promise<unknown>): Promise<boolean> => {
    const limit = new AbortController();
    // Not AbortSignal.timeout(), whose timer does not keep the process alive.
    const timer = setTimeout(() => limit.abort(), WAKE_UP_MS);
    try {
      await heard(limit.signal);
      return !limit.signal.aborted;
    } finally {
      clearTimeout(timer);
    }
  };
  let heard: ((signal: AbortSignal) => Promise<true | Failure>) | undefined;
  await direct(backend)(KEY, undefined, async (store) => {
    heard = store.watch(KEY);
    return await Promise.resolve(true as const);
  });
  const watch = heard;
  if (watch === undefined) return undefined;
  // The first time it tells that it listens.
  const isListening = await next(watch);
  return async () => {
    if (!isListening) {
      const fix = "ACL SETUSER … +subscribe +unsubscribe, and the channels with the keys' prefix";
      return warn(name, `the user may not listen: ${polls}`, fix);
    }
    if (await next(watch)) return ok(name, "a release is told at once");
    const fix = "ACL SETUSER … +publish, and the channels with the keys' prefix";
    return warn(name, `a release is told to nobody: ${polls}`, fix);
  };
}

function roundTrip(roundTripsMs: number[]): Check {
  const sorted = roundTripsMs.sort((a, b) => a - b);
  const medianMs = sorted[Math.floor(sorted.length / 2)] as number;
  const message = `median ${formatDuration(medianMs)}, longest ${formatDuration(sorted.at(-1) as number)}`;
  if (medianMs < SLOW_MS) return ok("round trip", message);
  return warn("round trip", message, "use a store that is nearer, and TTLs of many round trips");
}

function failure(name: string, error: unknown): Check {
  const { message, fix } = troubleOf(error);
  return fail(name, message, fix);
}

const STYLES: Readonly<Record<Check["status"], Style>> = {
  ok: "green",
  warn: "yellow",
  fail: "red",
};

function report(description: string, checks: readonly Check[], out: Output): string {
  const width = Math.max(...checks.map(({ name }) => name.length));
  const lines = checks.flatMap(({ name, status, message, fix }) => {
    const line = `${out.style(STYLES[status], status.padEnd(4))}  ${name.padEnd(width)}  ${printable(message)}`;
    return fix === undefined ? [line] : [line, `      ${"".padEnd(width)}  fix: ${printable(fix)}`];
  });
  return [printable(description), ...lines].join("\n");
}
