/** What a build says. */

import { expect, test } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as build from "../../scripts/lib/build.mjs";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as programs from "../../scripts/lib/run.mjs";

const { onceCompiling } = build as { onceCompiling: (say: () => void) => (text: string) => void };
const { must } = programs as {
  must: (command: string, args: readonly string[], options: object) => Promise<unknown>;
};

/** How often a build says that it takes a while, if cargo prints this to standard error. */
async function saidOf(printed: string): Promise<number> {
  let said = 0;
  const onPrint = onceCompiling(() => {
    said += 1;
  });
  const program = `process.stderr.write(${JSON.stringify(printed)})`;
  await must(process.execPath, ["-e", program], { quiet: true, onPrint });
  return said;
}

test("it says that cargo builds, once, and nothing if cargo has nothing to do", async () => {
  const finished = "    Finished `release` profile [optimized] target(s) in 0.31s\n";
  expect(await saidOf(`    Blocking waiting for file lock\n${finished}`)).toBe(0);
  const lines = "   Compiling serde v1.0.0\n   Compiling syncguard v3.0.0\n";
  expect(await saidOf(lines + finished)).toBe(1);
});
