// What must not be in the repository.

import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join, sep } from "node:path";
import { root } from "./paths.mjs";
import { must } from "./run.mjs";

const FORBIDDEN_NAMES = /\.(node|tgz|so|dylib|dll)$|(^|\/)(node_modules|target|dist)\//;

const FORBIDDEN_TEXT = [
  [/\.\.\/shared\b/, "a path outside of the project"],
  [/(^|[\s"'`(=:])\/(work|root)\/\w/, "an absolute path of one machine"],
  // Where this is being checked: the machine of whoever wrote it, or CI's.
  ...[homedir(), root]
    .filter((path) => path.length > 1)
    .map((path) => [
      { test: (line) => line.includes(path + sep) },
      "an absolute path of this machine",
    ]),
];

/** Fails when a tracked file is build output or names a path of the machine it was written on. */
export async function checkTrackedFiles() {
  const { output } = await must("git", ["ls-files", "-z"], { quiet: true });
  const names = output.split("\0").filter(Boolean);
  const wrong = names
    .filter((name) => FORBIDDEN_NAMES.test(name))
    .map((name) => `${name}: build output`);
  for (const name of names) wrong.push(...textFaults(name));
  if (wrong.length > 0) throw new Error(wrong.join("\n"));
  return `${names.length} files`;
}

function textFaults(name) {
  let text;
  try {
    text = readFileSync(join(root, name), "utf8");
  } catch (error) {
    // Removed from the work tree and not yet from the index.
    if (error.code === "ENOENT") return [];
    throw error;
  }
  return text
    .split("\n")
    .flatMap((line, index) =>
      FORBIDDEN_TEXT.filter(([pattern]) => pattern.test(line)).map(
        ([, fault]) => `${name}:${index + 1}: ${fault}`,
      ),
    );
}
