/** The command line, as processes of its own. */

import { fileURLToPath } from "node:url";
import { expect } from "vitest";
import { type Finished, startProgram } from "./child";

export const main = fileURLToPath(new URL("../../dist/cli/main.js", import.meta.url));

/** Starts `syncguard` on the store at `url`; `undefined` for the default. */
export function startCli(url: string | undefined, ...args: string[]) {
  // Without what the machine or the test runner may have set.
  const env = { SYNCGUARD_URL: url, NODE_ENV: undefined, NO_COLOR: undefined };
  return startProgram(process.execPath, [main, ...args], env);
}

/** Runs it to its end. */
export async function cli(url: string | undefined, ...args: string[]): Promise<Finished> {
  return await startCli(url, ...args).finished;
}

/** What it prints with `--json`, when it ends with that code. */
export async function json(code: number, url: string, ...args: string[]): Promise<unknown> {
  const { stdout, stderr, code: found } = await cli(url, ...args, "--json");
  expect({ stderr, code: found }).toEqual({ stderr: "", code });
  return JSON.parse(stdout);
}

/** Nothing of it may be coloured, because nobody watches. */
export function expectPlain({ stdout, stderr }: Finished): void {
  expect(stdout + stderr).not.toContain("\u001b");
}
