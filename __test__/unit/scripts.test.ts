/** Commands of a clone begin without any package: they install them first, and import only then what needs them. */

import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { expect, test } from "vitest";

const IMPORT = /^(?:import|export)\b[^"';]*?\bfrom "([^"]+)"|^import "([^"]+)"/gm;

/** The packages that a module imports before it runs, by itself or by what it imports. */
function packagesOf(file: string, seen = new Set<string>()): string[] {
  if (seen.has(file)) return [];
  seen.add(file);
  return [...readFileSync(file, "utf8").matchAll(IMPORT)].flatMap(([, from, bare]) => {
    const name = from ?? bare ?? "";
    if (name.startsWith("node:")) return [];
    return name.startsWith(".") ? packagesOf(resolve(dirname(file), name), seen) : [name];
  });
}

const { scripts } = JSON.parse(readFileSync("package.json", "utf8")) as {
  scripts: Record<string, string>;
};
const commands = Object.entries(scripts).flatMap(([name, line]): [string, string][] => {
  const file = /^node (scripts\/\S+)$/.exec(line)?.[1];
  return file === undefined ? [] : [[name, file]];
});

test.each(commands)("npm run %s begins without packages", (_, file) => {
  expect(packagesOf(file)).toEqual([]);
});

test("what is imported by a module that is imported is found", () => {
  expect(packagesOf("verify/frame/play.mjs")).toContain("ioredis");
});
