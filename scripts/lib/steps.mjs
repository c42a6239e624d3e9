// Steps that run one after the other, each independent of the others' success.

import { run } from "./run.mjs";

/**
 * Runs steps `{ name, task }`. A task returns a line to show beside its name, or nothing; a step that
 * throws has failed, and its message is shown in full. Resolves to the names of the failed ones.
 */
export async function runSteps(steps) {
  const failed = [];
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
  return failed;
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
