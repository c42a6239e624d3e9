import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as green from "../../scripts/lib/green.mjs";

interface Step {
  name: string;
  task(): Promise<unknown>;
}
const { RUST, SCRIPTS, unlessGreen } = green as {
  RUST(name: string): boolean;
  SCRIPTS(name: string): boolean;
  unlessGreen(reads: unknown, steps: Step[], where: object): Step[];
};

describe("a step of the check", () => {
  let parent: string;
  let folder: string;
  beforeEach(() => {
    parent = mkdtempSync(join(tmpdir(), "green-"));
    folder = join(parent, "clone");
    execFileSync("git", ["init", "-q", folder]);
    write("a.ts", "1");
  });
  afterEach(() => rmSync(parent, { recursive: true }));

  const write = (name: string, text: string) => writeFileSync(join(folder, name), text);
  const stepOf = (task: Step["task"], reads = SCRIPTS, name = "lint") => {
    const where = { folder, file: join(parent, "cache", "green.json") };
    return unlessGreen(reads, [{ name, task }], where)[0] as Step;
  };

  test("is not run again while the files that it reads are those of a time when it passed", async () => {
    const task = vi.fn(async () => "a note");
    const step = stepOf(task);
    expect(await step.task()).toBe("a note");
    expect(await step.task()).toContain("passed before");
    expect(task).toHaveBeenCalledTimes(1);
    write("a.txt", "it does not read this");
    await step.task();
    expect(task).toHaveBeenCalledTimes(1);
    write("a.ts", "2");
    await step.task();
    expect(task).toHaveBeenCalledTimes(2);
    write("a.ts", "1");
    await step.task();
    expect(task).toHaveBeenCalledTimes(2);
  });

  test("that failed is run again, and so is another of the same files", async () => {
    const task = vi.fn(async () => {
      throw new Error("broken");
    });
    const step = stepOf(task);
    await expect(step.task()).rejects.toThrow("broken");
    await expect(step.task()).rejects.toThrow("broken");
    expect(task).toHaveBeenCalledTimes(2);
    const other = vi.fn(async () => undefined);
    await stepOf(other, SCRIPTS, "types").task();
    expect(other).toHaveBeenCalledTimes(1);
  });

  test("of cargo's reads crates, their settings and the pages that they embed", () => {
    const read = ["Cargo.lock", "clippy.toml", "crates/syncguard/src/lib.rs", "docs/concepts.md"];
    expect(read.filter(RUST)).toEqual(read);
    expect(["package.json", "npm/syncguard/index.ts", "cratesx/a.rs"].filter(RUST)).toEqual([]);
  });
});
