/** The list of mutations: each still finds the text that it breaks. */

import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as list from "../../scripts/lib/mutations.mjs";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as reports from "../../scripts/lib/mutations/found.mjs";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as records from "../../scripts/lib/records.mjs";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as torture from "../../scripts/lib/torture.mjs";

interface Edit {
  file: string;
  find: string;
  replace: string;
}

interface Mutation {
  name: string;
  store: string;
  breaks: string;
  edits: Edit[];
  trouble: string[];
  test?: { suite: string; name: string };
}

const { mutations, edited } = list as {
  mutations: Mutation[];
  edited: (text: string, edit: Edit) => string;
};
const { storeNames } = torture as { storeNames: string[] };
type Entry = Record<"store" | "breaks" | "date" | "after" | "seen", string>;
type Row = Record<string, string | number>;
const { readFound, foundEntry, foundRow } = reports as {
  readFound: () => Record<string, Entry>;
  foundEntry: (result: object, date: string) => Row;
  foundRow: (found: object, store: string) => Row;
};
const { withRows } = records as {
  withRows: (text: string, heading: string, rows: Row[]) => string;
};

const root = join(import.meta.dirname, "../..");

function rustIn(folder: string): string[] {
  const names = readdirSync(join(root, folder), { encoding: "utf8", recursive: true });
  const files = names.filter((name) => name.endsWith(".rs"));
  return files.map((name) => readFileSync(join(root, folder, name), "utf8"));
}

describe.each(mutations)("$name", ({ edits, store, trouble, breaks, test: named }) => {
  test("finds its texts, each once, and changes them", () => {
    const texts = new Map<string, string>();
    for (const edit of edits) {
      const text = texts.get(edit.file) ?? readFileSync(join(root, edit.file), "utf8");
      const changed = edited(text, edit);
      expect(changed).not.toBe(text);
      texts.set(edit.file, changed);
    }
    expect(texts.size).toBeGreaterThan(0);
  });

  test("names a run that there is", () => {
    expect(breaks).toMatch(/\.$/);
    if (named) {
      const inside = ["crates/syncguard/src/waiting", "verify/simulation"];
      const folders = named.suite === "lib" ? inside : [`crates/syncguard/tests/${named.suite}`];
      const texts = folders.flatMap(rustIn);
      expect(texts.join("\n")).toMatch(new RegExp(`^(async )?fn ${named.name}\\(`, "m"));
      return;
    }
    expect(storeNames).toContain(store);
    const usage = readFileSync(join(root, "verify/torture/src/main.rs"), "utf8");
    for (const word of trouble) expect(usage).toContain(`[${word}]`);
  });
});

test("names are there once, and of each is known how it was found", () => {
  const names = mutations.map(({ name }) => name);
  expect(new Set(names).size).toBe(names.length);
  const expected = mutations.map(({ name, store, breaks }) => {
    const known = {
      store,
      breaks,
      date: expect.stringMatching(/^\d{4}-\d\d-\d\d$/) as string,
      after: expect.stringMatching(/^(\d+ s|at once)$/) as string,
      seen: expect.stringMatching(/./) as string,
    };
    return [name, expect.objectContaining(known) as Entry];
  });
  expect(readFound()).toEqual(Object.fromEntries(expected));
});

test("the page counts them, and names those that nothing found", () => {
  const found = Object.entries(readFound());
  const page = readFileSync(join(root, "docs/reliability/mutations.md"), "utf8");
  const table = page.split("## The library")[1]?.split("\n## ")[0] ?? "";
  const cells = (row: Row, date: string): string[] => {
    const [where, ...counts] = Object.values(row).map(String);
    return [where ?? "", date, ...counts];
  };
  const stores = [...new Set(found.map(([, { store }]) => store))];
  const expected = stores.map((store) => {
    const dates = found.filter(([, entry]) => entry.store === store).map(([, { date }]) => date);
    return cells(foundRow(Object.fromEntries(found), store), dates.sort().at(-1) ?? "");
  });
  const rows = Array.from(table.matchAll(/^\| (.*\d{4}-\d\d-\d\d.*) \|$/gm), ([, row = ""]) =>
    row.split("|").map((cell) => cell.trim()),
  );
  expect(rows).toHaveLength(stores.length);
  expect(rows).toEqual(expect.arrayContaining(expected));
  const missed = found.filter(([, { seen }]) => /^nothing(;|$)/.test(seen));
  for (const [name] of missed) expect(table).toContain(`\`${name}\``);
});

test("what came of a mutation becomes an entry, and a row that fits the table", () => {
  const ran = { store: "redis", breaks: "It.", isRed: true, seconds: 8, operations: 44180 };
  const entries = {
    a: foundEntry({ ...ran, seen: "Acquire → Acquired" }, "now"),
    b: foundEntry({ ...ran, isRed: false, seconds: 60, seen: "0 violations" }, "now"),
    c: foundEntry({ ...ran, store: "test redis", test: {}, seen: "nothing_runs" }, "now"),
  };
  const known = { store: "redis", breaks: "It.", date: "now", operations: 44180 };
  expect(entries).toEqual({
    a: { ...known, after: "8 s", seen: "Acquire → Acquired" },
    b: { ...known, after: "not found", seen: "nothing" },
    c: { store: "test redis", breaks: "It.", date: "now", after: "at once", seen: "nothing_runs" },
  });
  const page = readFileSync(join(root, "docs/reliability/mutations.md"), "utf8");
  const rows = ["redis", "test redis"].map((store) => ({
    ...foundRow(entries, store),
    date: "now",
  }));
  const text = withRows(page, "The library", rows);
  expect(text).toContain("| redis | now | 2 | 1 | 8 |");
  expect(text).toContain("| test redis | now | 1 | 1 | 0 |");
});

test.each(["", "aa"])("a text that does not occur exactly once is refused: %j", (text) => {
  expect(() => edited(text, { file: "f", find: "a", replace: "b" })).toThrow(/^f: .* times/);
});
