// Judges a history of leaders.

/**
 * A process that was stopped has so long to hear of it: the first turn of its event loop after SIGCONT may come before anybody can tell it. What it writes then is refused by its fence.
 */
const WAKING_MS = 100;

/**
 * What is wrong with the history, and what it took.
 *
 * @returns violations for people; the milliseconds of each hand-over, by the signal that the leader got; the steps that a process which
 *   was stopped has made before it was told, and how long after SIGCONT it was told
 */
export function check(history, wakingMs = WAKING_MS) {
  const violations = [];
  const starts = history.filter(({ event }) => event === "start");
  const faults = history.filter(({ event }) => event.startsWith("SIG"));
  const lateSteps = [];
  let newest = { term: 0 };
  const running = new Map();
  for (const { event, member, term, atMs, message } of history) {
    if (event === "error") violations.push(`${member} has failed: ${message}`);
    if (event === "start") {
      if (term <= newest.term) violations.push(`term ${term} has begun after ${newest.term}`);
      if (running.has(member)) violations.push(`${member} leads twice at once`);
      running.set(member, term);
      newest = { term, member };
    }
    if (event === "end") running.delete(member);
    if (event !== "step" || term === newest.term) continue;
    // It does not know that another leads.
    const woken = faults.findLast((fault) => fault.member === member && fault.contAtMs < atMs);
    const sinceMs = woken === undefined ? Infinity : atMs - woken.contAtMs;
    if (sinceMs < wakingMs) lateSteps.push({ member, term, sinceMs });
    else violations.push(`${member} works in term ${term} while ${newest.member} leads`);
  }
  const handovers = {};
  for (const { event, member, atMs } of faults) {
    const next = starts.find((start) => start.atMs > atMs && start.member !== member);
    if (next === undefined) violations.push(`nobody has led after ${event}`);
    else (handovers[event] ??= []).push(next.atMs - atMs);
  }
  const toldMs = faults.flatMap(({ member, contAtMs }) => {
    if (contAtMs === undefined) return [];
    const told = history.find(
      (one) => one.event === "told" && one.member === member && one.atMs > contAtMs,
    );
    if (told === undefined) violations.push(`${member} was never told that it was stopped`);
    return told === undefined ? [] : [told.atMs - contAtMs];
  });
  return { violations, terms: starts.length, steps: stepsOf(history), handovers, lateSteps, toldMs };
}

function stepsOf(history) {
  return history.filter(({ event }) => event === "step").length;
}

/** The smallest, the middle and the largest. */
export function spread(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  return { least: sorted[0], median: sorted[Math.floor(sorted.length / 2)], most: sorted.at(-1) };
}
