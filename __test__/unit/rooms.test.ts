/** The rules of scripts/lib/rooms.mjs can fail, and each of their exceptions is needed. */

import { readFileSync } from "node:fs";
import { Linter } from "eslint";
import tseslint from "typescript-eslint";
import { describe, expect, test } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import * as module from "../../scripts/lib/rooms.mjs";

type Config = Linter.Config;
type Exceptions = Record<string, string[]>;
const rooms = module as {
  doors: Config[];
  limits: Config[];
  restrictions: (room: string, allowed?: string[]) => Linter.RulesRecord;
  checkRooms: () => string;
  misfits: (folders: readonly string[]) => string[];
  IMPORT_EXCEPTIONS: Exceptions;
  LIMIT_EXCEPTIONS: Exceptions;
};

const linter = new Linter();
const PARSER: Config = {
  files: ["**/*.ts"],
  languageOptions: { parser: tseslint.parser },
  linterOptions: { reportUnusedDisableDirectives: "off" },
};
const ROOT = "npm/syncguard";

/** The rules that a file of that name breaks, if this is its text. */
function broken(file: string, text: string, configs: Config[]): string[] {
  const messages = linter.verify(text, [PARSER, ...configs], { filename: `${ROOT}/${file}` });
  return messages.map(({ ruleId, message }) => ruleId ?? message);
}

describe("an import", () => {
  test.each([
    ["up, from the lowest room", "native/store.ts", "../options/names.js"],
    ["up by one room", "holding/lease.ts", "../waiting/waiting.js"],
    ["up to the backend", "watching/events.ts", "../backend/backend.js"],
    ["from store to store", "redis/client.ts", "../postgres/client.js"],
    ["from what all share to a store", "backend/acquire.ts", "../redis/addon.js"],
    ["from a room to an entry file", "holding/handle.ts", "../index.js"],
    ["from the store of tests to the command line", "testing/store.ts", "../cli/output.js"],
  ])("is refused %s", (_, file, from) => {
    for (const text of [`import { a } from "${from}";`, `import type { A } from "${from}";`]) {
      expect(broken(file, text, rooms.doors)).toEqual(["no-restricted-imports"]);
    }
    for (const text of [`await import("${from}");`, `type A = import("${from}").A;`]) {
      expect(broken(file, text, rooms.doors)).toEqual(["no-restricted-syntax"]);
    }
  });

  test.each([
    ["down", "backend/acquire.ts", "../holding/lease.js"],
    ["within a room", "holding/handle.ts", "./lease.js"],
    ["from a store to what all share", "redis/backend.ts", "../backend/native-backend.js"],
    ["from the command line to a store", "cli/commands/doctor.ts", "../../redis/backend.js"],
    ["within the command line", "cli/commands/doctor.ts", "../output.js"],
  ])("is allowed %s", (_, file, from) => {
    const texts = [
      `import { a } from "${from}";`,
      `await import("${from}");`,
      `type A = import("${from}").A;`,
    ];
    for (const text of texts) expect(broken(file, text, rooms.doors)).toEqual([]);
  });
});

describe("a folder", () => {
  const listed = /^(\d+) rooms$/.exec(rooms.checkRooms());

  test("of this repository is a room", () => {
    expect(Number(listed?.[1])).toBeGreaterThan(10);
  });

  test("that is no room is named, and so is a room that is not there", () => {
    const faults = rooms.misfits(["native", "attic"]);
    expect(faults[0]).toMatch(/^npm\/syncguard\/attic is no room/);
    expect(faults).toContain("npm/syncguard/values is a room and not there");
    expect(faults).toHaveLength(Number(listed?.[1]));
  });
});

describe("a function", () => {
  const lines = (count: number): string => `function f() {\n${"f();\n".repeat(count - 2)}}`;
  const branches = (count: number): string => `function f(a) {\n${"if (a) f();\n".repeat(count)}}`;
  test.each([
    ["six parameters", "function f(a, b, c, d, e, g) {}", ["max-params"]],
    ["five parameters", "function f(a, b, c, d, e) {}", []],
    ["71 lines", lines(71), ["max-lines-per-function"]],
    ["70 lines", lines(70), []],
    ["a complexity of 16", branches(15), ["complexity"]],
    ["a complexity of 15", branches(14), []],
  ])("may have %s, or not", (_, text, rules) => {
    expect(broken("holding/any.ts", text, rooms.limits)).toEqual(rules);
  });
});

describe("the exceptions are needed", () => {
  const read = (file: string): string => readFileSync(`${ROOT}/${file}`, "utf8");

  test.each(Object.entries(rooms.LIMIT_EXCEPTIONS))("for the limits of %s", (file, rules) => {
    const bare: Config = { files: ["**/*.ts"], rules: rooms.limits[0]?.rules ?? {} };
    expect([...new Set(broken(file, read(file), [bare]))].sort()).toEqual([...rules].sort());
  });

  test("for imports", () => {
    for (const [file, allowed] of Object.entries(rooms.IMPORT_EXCEPTIONS)) {
      for (const room of allowed) {
        const others = allowed.filter((name) => name !== room);
        const rules = rooms.restrictions(file.split("/")[0] ?? "", others);
        const config: Config = { files: ["**/*.ts"], rules };
        expect(broken(file, read(file), [config]), `${file} and ${room}`).not.toEqual([]);
      }
    }
  });
});
