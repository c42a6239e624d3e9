import { readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./installed.js";

/** A block of code in README.md: its language, the mark after it, the heading above it. */
export type Block = { language: string; mark: string; heading: string; code: string };

/** The user guide. */
export const readme = readFileSync(join(root, "README.md"), "utf8");

/** Its blocks of code. */
export const blocks: Block[] = [...readme.matchAll(/^```(\w+)(?: (\S+))?\n(.*?)^```$/gms)].map(
  ({ 1: language = "", 2: mark = "", 3: code = "", index }) => ({
    language,
    mark,
    heading:
      readme
        .slice(0, index)
        .match(/^#+ (.*)$/gm)
        ?.at(-1) ?? "",
    code,
  }),
);

/** The quick start, an ES module. */
export const quickStart = blocks.find(({ mark }) => mark === "quick-start")?.code ?? "";

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
