/** The packages as users get them: packed, installed with no Rust in sight, used in every way. */

import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Installed, installPackages, root } from "./installed.js";
import { asFunction, quickStart } from "./readme.js";

const EXPECTED = /^written under fence 0{14}\d\n$/;

let installed: Installed;
beforeAll(async () => {
  installed = await installPackages();
}, 120_000);
afterAll(() => {
  installed.remove();
});

/** Writes a file, runs it, and returns what it printed. */
async function runFile(name: string, code: string): Promise<string> {
  writeFileSync(join(installed.folder, name), code);
  const { code: exit, stdout, stderr } = await installed.node(name);
  expect({ exit, stderr }).toEqual({ exit: 0, stderr: "" });
  return stdout;
}

describe("what is in them", () => {
  const files = (name: string): string[] =>
    readdirSync(join(installed.folder, "node_modules", name), { recursive: true }).map(String);

  it("is the built library with its licence and its guide, and no sources", () => {
    const names = files("syncguard");
    expect(names).toEqual(expect.arrayContaining(["LICENSE", "README.md", "package.json"]));
    const code = names.filter((name) => name.startsWith("dist/"));
    expect(code.length).toBeGreaterThan(0);
    expect(code.filter((name) => !/\.(js|mjs|d\.ts|d\.mts)$/.test(name))).toEqual([]);
    expect(names.filter((name) => /(^|\/)(scripts|crates|demo|__test__)(\/|$)/.test(name))).toEqual(
      [],
    );
  });

  it("is a binary with its licence and nothing else", () => {
    const names = readdirSync(join(installed.folder, "node_modules"));
    const binaries = names.filter((name) => name.startsWith("syncguard-"));
    expect(binaries).toHaveLength(1);
    const [binary = ""] = binaries;
    const addon = `${binary.replace("-", ".")}.node`;
    expect(files(binary).sort()).toEqual(["LICENSE", "README.md", "package.json", addon].sort());
  });

  it("is a manifest that installs the binary and runs no scripts", async () => {
    const manifest = JSON.parse(
      await runFile(
        "manifest.cjs",
        'console.log(JSON.stringify(require("syncguard/package.json")));',
      ),
    ) as Record<string, unknown> & { optionalDependencies: Record<string, string> };
    expect(manifest).not.toHaveProperty("scripts");
    expect(manifest).not.toHaveProperty("devDependencies");
    expect(manifest).not.toHaveProperty("dependencies");
    expect(manifest).not.toHaveProperty("private");
    expect(Object.values(manifest.optionalDependencies)).toEqual([manifest.version]);
  });

  it("needs only the C library of the system", () => {
    const needs = /needs ((lib(c|m|gcc_s)\.so\.\d+|ld-linux\S+)(, )?)+ and glibc 2\.\d+/;
    // Other systems' binaries are not read.
    if (process.platform !== "linux") expect(installed.packed).not.toContain("needs");
    else expect(installed.packed).toMatch(needs);
  });
});

describe("the quick start", () => {
  it("runs as an ES module", async () => {
    expect(await runFile("quick.mjs", quickStart)).toMatch(EXPECTED);
  });

  it("runs as CommonJS", async () => {
    expect(await runFile("quick.cjs", asFunction(quickStart, false))).toMatch(EXPECTED);
  });

  it.each([
    ["nodenext", "quick.mts", "quick.mjs", ["--module", "nodenext"], quickStart],
    ["node16", "quick16.cts", "quick16.cjs", ["--module", "node16"], asFunction(quickStart, true)],
    [
      "bundler",
      "bundled.mts",
      "bundled.mjs",
      ["--module", "esnext", "--moduleResolution", "bundler"],
      quickStart,
    ],
    [
      "node10",
      "classic.ts",
      "classic.js",
      ["--module", "commonjs", "--moduleResolution", "node10"],
      asFunction(quickStart, true),
    ],
  ])("compiles and runs with TypeScript's %s", async (_, source, output, options, code) => {
    writeFileSync(join(installed.folder, source), code);
    const types = ["--types", "node", "--typeRoots", join(root, "node_modules/@types")];
    const strict = ["--strict", "--target", "es2022", "--lib", "es2022,esnext.disposable"];
    const compiled = await installed.tsc(source, ...strict, ...types, ...options);
    expect(compiled).toEqual({ code: 0, stdout: "", stderr: "" });
    const { stdout, stderr } = await installed.node(output);
    expect(stderr).toBe("");
    expect(stdout).toMatch(EXPECTED);
  });

  it("compiles without Node's types", async () => {
    writeFileSync(join(installed.folder, "dom.mts"), quickStart);
    const options = ["--strict", "--noEmit", "--module", "nodenext", "--target", "es2022"];
    const lib = ["--lib", "es2022,dom,esnext.disposable"];
    const compiled = await installed.tsc("dom.mts", ...options, ...lib);
    expect(compiled).toEqual({ code: 0, stdout: "", stderr: "" });
  });
});
