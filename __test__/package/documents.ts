/** The documents for users, and the blocks of code in them. */

import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./installed.js";

/**
 * A block of code in a document. Its language is followed by a mark that says how it is tested:
 *
 * - `check`: it is compiled, because it needs a server of the reader's;
 * - `run`: it is run, and prints what comments after `console.log` promise;
 * - `redis`, `postgres`, `firestore`: it is run on a server, which takes the place of the one that it names;
 * - `dynamodb`: the same, with locks on Redis and data on a server in JavaScript that stands for DynamoDB;
 * - `example`: it stands in an example, which has tests of its own;
 * - a mark of its own, for a test of its own.
 *
 * What a fragment needs around it stands in a comment before it, which readers do not see: `<!-- given … -->`. What a test does
 * with it afterwards stands in one behind it: `<!-- then … -->`. If that is long, it is `from NAME`, for given/NAME.txt or
 * then/NAME.txt.
 */
export type Block = {
  language: string;
  mark: string;
  /** What `<!-- given … -->` before it says. */
  given: string;
  code: string;
  /** What `<!-- then … -->` behind it says. */
  then: string;
  /** The document, and the line in it. */
  place: string;
};

/** The documents: their texts by their paths. */
export const documents: ReadonlyMap<string, string> = new Map(
  markdown("README.md", "docs", "examples").map((path) => [
    path,
    readFileSync(join(root, path), "utf8"),
  ]),
);

/**
 * The Markdown files under these paths. Git is asked for them: what is installed in a folder is not ours, and among it are
 * links back to the root, which a walk through the folders would follow without end.
 */
function markdown(...paths: string[]): string[] {
  const options = ["--cached", "--others", "--exclude-standard", "-z"];
  const listed = execFileSync("git", ["ls-files", ...options, "--", ...paths], { cwd: root });
  return listed
    .toString()
    .split("\0")
    .filter((path) => path.endsWith(".md") && existsSync(join(root, path)))
    .sort();
}

const BLOCK =
  /(?:^<!-- given\n(.*?)^-->\n\n)?^```(\w*)(?: +(\S+))?[^\n]*\n(.*?)^```$(?:\n\n^<!-- then\n(.*?)^-->$)?/gms;

/** The blocks of a document. */
export function blocksOf(path: string, text: string): Block[] {
  return [...text.matchAll(BLOCK)].map(
    ({
      0: all,
      1: given = "",
      2: language = "",
      3: mark = "",
      4: code = "",
      5: then = "",
      index,
    }) => {
      const start = index + all.indexOf("```");
      const line = text.slice(0, start).split("\n").length;
      return {
        ...{ language, mark, code, place: `${path}:${line}` },
        ...{ given: textOf("given", given), then: textOf("then", then) },
      };
    },
  );
}

/** What a comment says, or the file that it names. */
function textOf(folder: "given" | "then", comment: string): string {
  const [, name] = /^from (\S+)\n$/.exec(comment) ?? [];
  if (name === undefined) return comment;
  return readFileSync(join(root, "__test__/package", folder, `${name}.txt`), "utf8");
}

/** All blocks of all documents. */
export const blocks: Block[] = [...documents].flatMap(([path, text]) => blocksOf(path, text));

/** The one block with a mark of its own. */
export function blockMarked(mark: string): Block {
  const [block, ...others] = blocks.filter((each) => each.mark === mark);
  if (block === undefined || others.length > 0) throw new Error(`not one block is marked ${mark}`);
  return block;
}

/** The quick start, an ES module. */
export const quickStart = blockMarked("quick-start").code;

/** An ES module as the body of an async function, its imports apart. */
export function asFunction(code: string, keepImports: boolean): string {
  const isImport = (line: string): boolean => line.startsWith("import ");
  const lines = code.split("\n");
  const imports = lines
    .filter(isImport)
    .map((line) =>
      keepImports ? line : line.replace(/^import (.*) from (.*);$/, "const $1 = require($2);"),
    );
  const body = lines.filter((line) => !isImport(line));
  return [...imports, "void (async () => {", ...body, "})();", ""].join("\n");
}

/** The values that comments after `console.log` promise, in their order. */
export function promisedOutput(code: string): string[] {
  const promise = /console\.log\(.*\); \/\/ (true|false|\d+|"[^"]*"|\{[^}]*\})/g;
  return [...code.matchAll(promise)].map(([, value = ""]) => value.replaceAll('"', ""));
}
