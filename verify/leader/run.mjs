// npm run torture -- lead [STORES SECONDS SEED]: five processes want to lead on each store.

import { stores } from "../../bench/waiting/stores.mjs";
import { check, spread } from "./check.mjs";
import { runCandidates } from "./candidates.mjs";

const MEMBERS = 5;
const TTL_MS = 2_000;

/** Resolves to the exit code. */
export async function runLeaders([names = "redis,postgres", seconds = "60", seed = "7"]) {
  let isRight = true;
  for (const name of names.split(",")) {
    if (stores[name] === undefined) {
      throw new Error(`no such store: ${name} (${Object.keys(stores).join(", ")})`);
    }
    const { place, server } = await stores[name]();
    try {
      const settings = { members: MEMBERS, seconds: Number(seconds), seed: Number(seed) };
      const found = check(await runCandidates({ place, ttlMs: TTL_MS, ...settings }));
      tell(name, seconds, seed, found);
      isRight &&= found.violations.length === 0;
    } finally {
      await server.stop();
    }
  }
  return isRight ? 0 : 1;
}

function tell(name, seconds, seed, { violations, terms, steps, handovers, lateSteps, toldMs }) {
  console.log(`\n${name}: ${MEMBERS} processes, ${seconds} s, TTL ${TTL_MS} ms, seed ${seed}`);
  console.log(`terms ${terms}, steps ${steps}, violations ${violations.length}`);
  for (const [signal, times] of Object.entries(handovers)) {
    console.log(`after ${signal}, another leads: ${line(times)}`);
  }
  if (toldMs.length > 0) console.log(`after SIGCONT, it is told: ${line(toldMs)}`);
  console.log(`steps before it was told: ${lateSteps.length}`);
  for (const violation of violations) console.error(violation);
}

function line(times) {
  const { least, median, most } = spread(times);
  const [from, middle, to] = [least, median, most].map((ms) => ms.toFixed(1));
  return `${middle} ms (${from} to ${to}, ${times.length} times)`;
}
