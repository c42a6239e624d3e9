// Where tests put their servers' files, and that nothing stays there.

import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as scratch from "../../scripts/lib/scratch.mjs";
import { temporaryFolder } from "../support/temp";

const { scratchPlace } = scratch as {
  scratchPlace: (env: NodeJS.ProcessEnv, memory?: string) => string;
};
const module = join(import.meta.dirname, "../../scripts/lib/scratch.mjs");

test("it is gone with its process, and so is what processes have left that were killed", () => {
  const { path, remove } = temporaryFolder();
  onTestFinished(remove);
  const { pid } = spawnSync(process.execPath, ["-e", ""]);
  const [dead, living] = [`syncguard-${pid}-a`, `syncguard-${process.pid}-a`];
  for (const name of [dead, living, "others"]) mkdirSync(join(path, name));
  const program = `import { useScratch } from ${JSON.stringify(module)};
    import { mkdtempSync, statSync } from "node:fs";
    import { tmpdir } from "node:os";
    useScratch(${JSON.stringify(path)});
    const own = mkdtempSync(tmpdir() + "/server-");
    console.log(JSON.stringify([own, statSync(tmpdir()).mode & 0o777]));`;
  const { stdout } = spawnSync(process.execPath, ["--input-type=module", "-e", program]);
  const [own, mode] = JSON.parse(stdout.toString()) as [string, number];
  expect(own.startsWith(`${path}/syncguard-`)).toBe(true);
  // Other users get through it, and see nothing.
  expect(mode).toBe(0o711);
  expect(existsSync(own)).toBe(false);
  expect(readdirSync(path).sort()).toEqual(["others", living]);
});

test("it is where the user says, and on the disk where memory has no place for it", () => {
  expect(scratchPlace({ TMPDIR: tmpdir() })).toBe(tmpdir());
  expect(scratchPlace({}, "/nowhere")).toBe(tmpdir());
  // No file system in memory, though there is room.
  expect(scratchPlace({}, "/")).toBe(tmpdir());
});
