/** How the types of the addon are written from what napi's macros note. */

import { expect, test } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as types from "../../scripts/lib/addon-types.mjs";

type Note = { kind: string; name: string; def: string; js_doc: string };

const { exportsSource } = types as { exportsSource: (notes: Note[]) => string };

const note = (kind: string, name: string, def: string, js_doc = ""): Note => ({
  kind,
  name,
  def,
  js_doc,
});

test("classes have the methods of all their blocks, whatever order files are compiled in", () => {
  const blocks = [
    note("impl", "Store", "static redis(): Store"),
    note("struct", "Store", "", "/** A store. */\n"),
    note("impl", "Store", " close(): boolean"),
  ];
  const source = exportsSource(blocks);
  expect(source).toMatch(/^\/\*\* A store\. \*\/\nexport declare class Store \{\n#native;/);
  expect(source).toContain("static redis(): Store");
  expect(source).toContain("close(): boolean");
  expect(exportsSource(blocks.reverse())).toBe(source);
});

test("enums are numbers that the compiler knows, or unions of texts", () => {
  expect(exportsSource([note("enum", "Tag", "Yes = 0,\nNo = 1")])).toBe(
    "export const enum Tag {\nYes = 0,\nNo = 1\n}",
  );
  expect(
    exportsSource([note("string_enum", "Side", "Server = 'server',\nClient = 'client'")]),
  ).toBe("export type Side = 'server' | 'client';");
});

test("parameters get names that TypeScript takes", () => {
  const def = "function read(arguments: string, function: string, functions: string): void";
  expect(exportsSource([note("fn", "read", def)])).toBe(
    "export declare function read(arguments_: string, function_: string, functions: string): void;",
  );
});

test("what napi notes in other words is not left out", () => {
  expect(() => exportsSource([note("type", "Either", "A | B")])).toThrow("no word for a type");
});
