// Cargo builds what is newer than what was built of it: which files of a clone are new, and which only lie in a new clone.

import { spawn } from "node:child_process";
import { mkdirSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { once } from "node:events";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as sources from "../../scripts/lib/sources.mjs";
import { temporaryFolder } from "../support/temp";

type Clone = { folder: string; paths: string[]; table: string; stamp: string; nowMs: number };
const { ageSources, enter } = sources as {
  ageSources: (clone: Clone) => void;
  enter: (folder: string) => Promise<() => void>;
};

const cache = temporaryFolder();
afterAll(() => {
  cache.remove();
});

let count = 0;
/** Clones that build into one folder. */
function clones(): () => {
  write: (text: string, ms: number) => void;
  build: (nowMs: number) => number;
} {
  const table = join(cache.path, `table-${count++}.json`);
  return () => {
    const folder = join(cache.path, `clone-${count++}`);
    const path = join(folder, "lib.rs");
    mkdirSync(folder);
    return {
      write: (text, ms) => {
        writeFileSync(path, text);
        utimesSync(path, ms / 1000, ms / 1000);
      },
      build: (nowMs) => {
        // Nothing is installed there yet.
        const stamp = join(folder, "node_modules", ".stamp");
        ageSources({ folder, paths: [path], table, stamp, nowMs });
        return Math.round(statSync(path).mtimeMs);
      },
    };
  };
}

test("a file of a fresh clone is as old as what was built of it", () => {
  const clone = clones();
  const [first, second] = [clone(), clone()];
  first.write("a", 1_000);
  expect(first.build(5_000)).toBe(1_000);
  expect(first.build(6_000)).toBe(1_000);
  second.write("a", 7_000);
  expect(second.build(8_000)).toBe(1_000);
});

test("one that differs is new, however old it looks, and so is the other one again", () => {
  const clone = clones();
  const [first, second] = [clone(), clone()];
  first.write("a", 1_000);
  first.build(5_000);
  second.write("b", 2_000);
  expect(second.build(6_000)).toBe(6_000);
  expect(first.build(7_000)).toBe(7_000);
  expect(second.build(8_000)).toBe(8_000);
});

test("one that was changed and changed back is new: cargo may have read what was between", () => {
  const only = clones()();
  only.write("a", 1_000);
  only.build(5_000);
  only.write("a", 6_000);
  expect(only.build(7_000)).toBe(7_000);
});

test.runIf(process.platform === "linux")(
  "one process at a time builds, and one that is killed is no longer in",
  async () => {
    const folder = join(cache.path, "target");
    const script = `
    const { enter } = await import(${JSON.stringify(new URL("../../scripts/lib/sources.mjs", import.meta.url).href)});
    await enter(${JSON.stringify(folder)});
    console.log("in");
    setInterval(() => {}, 1_000);`;
    const other = spawn(process.execPath, ["--input-type=module", "--eval", script], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    await once(other.stdout, "data");
    let isIn = false;
    const entering = enter(folder).then((leave) => {
      isIn = true;
      leave();
    });
    await new Promise<void>((resolve) => setImmediate(resolve));
    expect(isIn).toBe(false);
    other.kill("SIGKILL");
    await entering;
    expect(isIn).toBe(true);
  },
);
