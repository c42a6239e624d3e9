// How each mutation was found: found.json has an entry for each, and the table of docs/reliability/mutations.md counts them.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const path = join(import.meta.dirname, "found.json");

/** The entries, by the names of the mutations. */
export function readFound() {
  return JSON.parse(readFileSync(path, "utf8"));
}

/** Keeps what came of one mutation, in the place of what was known of it, and gives all entries. */
export function keepFound(name, entry) {
  const found = { ...readFound(), [name]: entry };
  writeFileSync(path, `${JSON.stringify(found, null, 2)}\n`);
  return found;
}

/** The entry of a mutation, by what scripts/mutations.mjs has seen. */
export function foundEntry({ store, breaks, test, isRed, seconds, operations, seen }, date) {
  const after = test ? "at once" : `${seconds} s`;
  return {
    store,
    breaks,
    date,
    after: isRed ? after : "not found",
    ...(test ? {} : { operations }),
    seen: isRed ? seen : "nothing",
  };
}

/** The row of one store, or of one suite of tests, in the table of the page. */
export function foundRow(found, store) {
  const entries = Object.values(found).filter((entry) => entry.store === store);
  const isFound = ({ seen }) => !/^nothing(;|$)/.test(seen);
  const seconds = entries.filter(isFound).map(({ after }) => Number.parseInt(after, 10) || 0);
  return {
    "run on": store,
    mutations: entries.length,
    found: entries.filter(isFound).length,
    "longest until found, s": Math.max(0, ...seconds),
  };
}
