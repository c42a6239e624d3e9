// npm run torture -- lead [STORES SECONDS SEED]: five processes want to lead on each store (docs/reliability.md, "Leaders").

import { runCandidates } from "./candidates.mjs";
import { check, spread } from "./check.mjs";

export const leaders = {
  stores: ["redis", "postgres"],
  settings: { seconds: 60, seed: 7, members: 5, ttlMs: 2_000 },
  run: runCandidates,
  judge(notes, { wakingMs }) {
    const found = check(notes, wakingMs);
    return { ...found, figures: figuresOf(found) };
  },
};

function figuresOf({ terms, steps, handovers, lateSteps, toldMs }) {
  const after = Object.entries(handovers).map(([signal, times]) => [
    `after ${signal}, another leads`,
    line(times),
  ]);
  return {
    terms,
    steps,
    ...Object.fromEntries(after),
    ...(toldMs.length > 0 && { "after SIGCONT, it is told": line(toldMs) }),
    "steps before it was told": lateSteps.length,
  };
}

function line(times) {
  const { least, median, most } = spread(times);
  const [from, middle, to] = [least, median, most].map((ms) => ms.toFixed(1));
  return `${middle} ms (${from} to ${to}, ${times.length} times)`;
}
