/** The guide: what it shows runs, and what it lists is there. */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Installed, installPackages, root } from "./installed.js";
import { blocks, readme } from "./readme.js";

const runnable = blocks.filter(({ mark }) => mark === "run");
/** What needs a server of the reader's. */
const checked = blocks.filter(({ mark }) => mark === "check");

let installed: Installed;
beforeAll(async () => {
  installed = await installPackages();
}, 120_000);
afterAll(() => {
  installed.remove();
});

describe("the examples", () => {
  it("are all marked as runnable", () => {
    const unmarked = blocks.filter(({ language, mark }) => /^[jt]s$/.test(language) && mark === "");
    expect(unmarked).toEqual([]);
    expect(runnable.length).toBeGreaterThanOrEqual(7);
  });

  it.each(runnable.map((block, index) => ({ ...block, name: `example${index}` })))(
    "run: $heading",
    async ({ language, code, name }) => {
      if (language === "ts") {
        await compile(name, code);
      } else {
        writeFileSync(join(installed.folder, `${name}.mjs`), code);
      }
      const { code: exit, stdout, stderr } = await installed.node(`${name}.mjs`);
      expect({ exit, stderr }).toEqual({ exit: 0, stderr: "" });
      expectInOrder(stdout, promisedOutput(code));
    },
  );
});

describe("the examples that need a server", () => {
  it.each(checked.map((block, index) => ({ ...block, name: `checked${index}` })))(
    "compile: $heading",
    async ({ code, name }) => {
      await compile(name, code);
    },
  );
});

it("the Rust example is one that cargo test runs", () => {
  const docs = readFileSync(join(root, "crates/syncguard/src/sqlite/mod.rs"), "utf8");
  const tested = docs.split("\n").map((line) => line.replace(/^\/\/! ?/, ""));
  const [example, ...others] = blocks.filter(({ language }) => language === "rust");
  const lines = example?.code.split("\n").filter(Boolean) ?? [];
  expect(lines.length).toBeGreaterThan(3);
  expect(others).toEqual([]);
  expect(tested).toEqual(expect.arrayContaining(lines));
});

describe("the lists", () => {
  it("name scripts that exist", () => {
    const { scripts } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
      scripts: Record<string, string>;
    };
    const [first = ""] = readme.split("## Install");
    const named = [...first.matchAll(/^npm (?:run )?(\w+)/gm)].map(([, name]) => name);
    expect(named).toEqual(["demo", "test"]);
    expect(Object.keys(scripts)).toEqual(expect.arrayContaining(named));
  });

  it("explain every error code", () => {
    const codes = [...readme.matchAll(/^\| `([A-Z]\w+)` +\|/gm)].map(([, code]) => code);
    expect(codes.sort()).toEqual([
      ...["Aborted", "AcquisitionTimeout", "AuthFailed", "Internal"],
      ...["InvalidArgument", "LockLost", "NetworkTimeout", "RateLimited", "ServiceUnavailable"],
    ]);
  });
});

async function compile(name: string, code: string): Promise<void> {
  writeFileSync(join(installed.folder, `${name}.mts`), code);
  const compiled = await installed.tsc(
    ...[`${name}.mts`, "--strict", "--module", "nodenext", "--target", "es2022"],
    ...["--lib", "es2022,esnext.disposable", "--types", "node"],
    ...["--typeRoots", join(root, "node_modules/@types")],
  );
  expect(compiled).toEqual({ code: 0, stdout: "", stderr: "" });
}

/** The values that comments after `console.log` promise. */
function promisedOutput(code: string): string[] {
  const promise = /console\.log\(.*\); \/\/ (true|false|"[^"]*"|\{[^}]*\})/g;
  return [...code.matchAll(promise)].map(([, value = ""]) => value.replaceAll('"', ""));
}

function expectInOrder(output: string, lines: string[]): void {
  const printed = output.split("\n");
  expect(printed.filter((line) => lines.includes(line))).toEqual(lines);
}
