/** The list of mutations: each still finds the text that it breaks. */

import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as list from "../../scripts/lib/mutations.mjs";
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

const root = join(import.meta.dirname, "../..");

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
      const folder = join(root, "crates/syncguard/tests", named.suite);
      const texts = readdirSync(folder).map((name) => readFileSync(join(folder, name), "utf8"));
      expect(texts.join("\n")).toContain(`async fn ${named.name}(`);
      return;
    }
    expect(storeNames).toContain(store);
    const usage = readFileSync(join(root, "verify/torture/src/main.rs"), "utf8");
    for (const word of trouble) expect(usage).toContain(`[${word}]`);
  });
});

test("names are there once, and the documents say of each how it was found", () => {
  const names = mutations.map(({ name }) => name);
  expect(new Set(names).size).toBe(names.length);
  const page = readFileSync(join(root, "docs/reliability/mutations.md"), "utf8");
  const [, table] = page.split("\n| mutation ");
  const [rows] = (table ?? "").split("\n\n");
  const lines = Array.from(rows?.matchAll(/^\| `([\w-]+)` +\| (.*) \|$/gm) ?? []);
  const said = lines.map(([, name, rest = ""]) => {
    const [store, date, breaks, after, , seen] = rest.split(" | ").map((cell) => cell.trim());
    expect({ name, date, after, seen }).toEqual({
      name,
      date: expect.stringMatching(/^\d{4}-\d\d-\d\d$/) as string,
      after: expect.stringMatching(/^(\d+ s|at once)$/) as string,
      seen: expect.stringMatching(/./) as string,
    });
    return { name, store, breaks };
  });
  const listed = mutations.map(({ name, store, breaks }) => ({ name, store, breaks }));
  expect(said).toHaveLength(listed.length);
  expect(said).toEqual(expect.arrayContaining(listed));
});

test.each(["", "aa"])("a text that does not occur exactly once is refused: %j", (text) => {
  expect(() => edited(text, { file: "f", find: "a", replace: "b" })).toThrow(/^f: .* times/);
});
