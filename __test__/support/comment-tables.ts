/** Tables in the comments of the project's own source. */

import { readFileSync } from "node:fs";

type CommentTable = { readonly head: string[]; readonly rows: string[][] };

/** The tables in the comments of a file, TypeScript's or Rust's, as cells. The path is that from the root. */
export function commentTables(path: string): CommentTable[] {
  const source = readFileSync(new URL(`../../${path}`, import.meta.url), "utf8");
  const found: CommentTable[] = [];
  let inTable = false;
  for (const line of source.split("\n")) {
    const cells = /^(?: \*|\/\/\/) \|(.*)\|$/
      .exec(line)?.[1]
      ?.split("|")
      .map((cell) => cell.trim());
    if (cells !== undefined && !inTable) found.push({ head: cells, rows: [] });
    else if (cells !== undefined && !/^-+$/.test(cells[0] ?? "")) found.at(-1)?.rows.push(cells);
    inTable = cells !== undefined;
  }
  return found;
}
