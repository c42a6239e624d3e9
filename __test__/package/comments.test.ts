/** The comments on the public API: nothing is without one, functions have examples, and the examples compile. */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { everythingShown, examples, functions, methods, type Shown } from "./comments.js";
import { type Ended, type Installed } from "./installed.js";
import { compile, faultsIn, installForReaders, writeBlock } from "./readers.js";

/** What examples of methods may use without making it. Those that make it themselves hide this one. */
const GIVEN = `
import type { HeldLock, SyncGuardBackend } from "syncguard";
declare global {
  const backend: SyncGuardBackend;
  const held: HeldLock;
}
`;

const shown = everythingShown();
const blocks = examples();
const fileOf = (index: number): string => `example${index}.mts`;
const named = ({ name, place }: Shown): string => `${name} (${place})`;

describe("the comments on the public API", () => {
  it("are on every export and every member", () => {
    expect(shown.filter(({ comment }) => comment === "").map(named)).toEqual([]);
  });

  it("are read at any depth", () => {
    expect(shown.map(({ name }) => name)).toEqual(
      expect.arrayContaining([
        ...["lock", "LOCK_DEFAULTS", "LockConfig.key", "AcquireOk.fence", "TestClock.advance"],
        // Reached through an alias, and through the parameter of a method.
        ...["Faults.steal", "SyncGuardBackend.extend.ttlMs", "LockError.new"],
      ]),
    );
    expect(shown.map(({ name }) => name).filter((name) => name.includes("#"))).toEqual([]);
  });

  it.each([
    ["function and class", functions(), 41],
    ["method of what those give", methods(), 30],
  ])("have an example on every %s", (_, all, atLeast) => {
    expect(all.length).toBeGreaterThanOrEqual(atLeast);
    expect(all.filter((each) => !each.hasExample).map(named)).toEqual([]);
  });
});

describe("the examples in comments", () => {
  let installed: Installed;
  /** What the compiler says, once for all examples. */
  let compiled: Ended;

  beforeAll(async () => {
    installed = await installForReaders();
    writeFileSync(join(installed.folder, "given.d.mts"), GIVEN);
    for (const [index, block] of blocks.entries()) writeBlock(installed, fileOf(index), block);
    compiled = await compile(installed, [
      "given.d.mts",
      ...blocks.map((_, index) => fileOf(index)),
    ]);
  }, 600_000);
  afterAll(() => {
    installed.remove();
  });

  it("are one block of TypeScript each", () => {
    const others = blocks.filter(({ language }) => language !== "ts");
    expect(others.map(({ place, code }) => `${place}: ${code}`)).toEqual([]);
  });

  it.each(blocks.map(({ place }, index) => ({ place, index })))("compile: $place", ({ index }) => {
    expect(faultsIn(compiled, fileOf(index))).toEqual([]);
  });

  it("give the compiler no other trouble", () => {
    expect(compiled).toEqual({ code: 0, stdout: "", stderr: "" });
  });
});
