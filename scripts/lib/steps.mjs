// Steps that run side by side, each independent of the others and of their success.

import { availableParallelism } from "node:os";
import { run } from "./run.mjs";

/**
 * Runs steps `{ name, task }`, as many at a time as there are cores, in their order. A task returns a
 * line to show beside its name, or nothing; a step that throws has failed, and its message is shown in
 * full. Resolves to the names of the failed ones.
 */
export async function runSteps(steps) {
  const failed = [];
  const waiting = steps.values();
  // All take from one iterator: each step runs once.
  await Promise.all(Array.from({ length: availableParallelism() }, () => runAll(waiting, failed)));
  return failed;
}

async function runAll(steps, failed) {
  for (const { name, task } of steps) {
    const start = Date.now();
    try {
      const note = await task();
      const seconds = ((Date.now() - start) / 1000).toFixed(1);
      console.log(`ok      ${name} (${seconds} s)${note ? `: ${note}` : ""}`);
    } catch (error) {
      failed.push(name);
      console.log(`FAILED  ${name}\n${error.message}\n`);
    }
  }
}

/** A step that is one command: it fails with all of the command's output. */
export function command(name, program, ...args) {
  return { name, task: () => quietly(program, args) };
}

/** Runs a command, shows nothing, and throws what it printed if it fails. */
export async function quietly(program, args, options = {}) {
  const { code, output } = await run(program, args, { ...options, quiet: true });
  if (code === 0) return undefined;
  throw new Error(`$ ${[program, ...args].join(" ")}\n${output.trimEnd()}\nexit code ${code}`);
}
