/** Holders whose machine is suspended, and whose clock is set. */

import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { run } from "../support/child";
import { temporaryFolder } from "../support/temp";

const folder = temporaryFolder();
const library = join(folder.path, "clocks.so");

/** A library before that of C, with clocks that can be set: that of the core's own tests. */
beforeAll(() => {
  const source = join(import.meta.dirname, "../../crates/syncguard/tests/sqlite/clocks.c");
  execFileSync("cc", ["-shared", "-fPIC", "-O1", "-o", library, source]);
});
afterAll(() => folder.remove());

/** What a program says that plays `scenario` under these clocks. */
async function play(scenario: string): Promise<string> {
  const { code, stdout, stderr } = await run("node", "suspended.mjs", [scenario], {
    LD_PRELOAD: library,
    CLOCKS_STILL: join(folder.path, `${scenario}-still`),
    CLOCKS_AHEAD: join(folder.path, `${scenario}-ahead`),
  });
  expect(code, stderr).toBe(0);
  return stdout;
}

test("a suspended machine holds no lock past its end", async () => {
  expect(await play("suspended")).toBe("before true true true\nafter false false false\n");
});

test("a clock that is set loses no lock", async () => {
  const said = "before true true true\nahead true true true\nbehind true true true\n";
  expect(await play("set")).toBe(said);
});
