/** The packages as users get them: packed, installed with no Rust in sight, used in every way. */

import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import { PLATFORMS } from "../../scripts/lib/platforms.mjs";
import { type Installed, installPackages, root } from "./installed.js";
import { asFunction, quickStart } from "./documents.js";

const EXPECTED = /^written under fence \d{15}\n$/;

let installed: Installed;
beforeAll(async () => {
  installed = await installPackages();
}, 600_000);
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
  const files = (name: string): string[] => {
    const folder = join(installed.folder, "node_modules", name);
    const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
    return entries
      .filter((entry) => entry.isFile())
      .map((entry) => relative(folder, join(entry.parentPath, entry.name)));
  };

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

  it("has documents that stand alone: their links lead to each other, or to the repository", () => {
    const folder = join(installed.folder, "node_modules/syncguard");
    const names = files("syncguard").filter((name) => name.endsWith(".md"));
    expect(names).toEqual(expect.arrayContaining(["docs/postgres.md", "docs/decisions/undo.md"]));
    const lost: string[] = [];
    for (const name of names) {
      const text = readFileSync(join(folder, name), "utf8");
      for (const [, href = ""] of text.matchAll(/\]\(([^)\s]+)\)/g)) {
        if (/^(https:|#)/.test(href)) continue;
        if (!existsSync(join(folder, dirname(name), href.replace(/#.*/, ""))))
          lost.push(`${name}: ${href}`);
      }
    }
    expect(lost).toEqual([]);
    const readme = readFileSync(join(folder, "README.md"), "utf8");
    expect(readme).toContain("npm install syncguard\n");
    // What only a clone can do, and the marks of what was left out.
    expect(readme).not.toMatch(/npm run|npm test|<!--|-->/);
  });

  it("has a command line", () => {
    const program = join(installed.folder, "node_modules", ".bin", "syncguard");
    const version = execFileSync(program, ["--version"], { encoding: "utf8" });
    expect(files("syncguard")).toContain("dist/cli/main.js");
    const { version: expected } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
      version: string;
    };
    expect(version).toBe(`${expected}\n`);
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
    // Only what was packed: npm looks for the others, and takes what a stranger has published.
    const named = installed.packed.match(/syncguard-[a-z]+-[a-z0-9]+(-[a-z]+)?(?=-\d)/g);
    expect(Object.keys(manifest.optionalDependencies)).toEqual(named);
    expect(new Set(Object.values(manifest.optionalDependencies))).toEqual(
      new Set([manifest.version]),
    );
    // The same for the message of a platform without one: a bundle has no manifest beside it.
    const list =
      'console.log(require("./node_modules/syncguard/dist/native/packaged.js").PACKAGED);';
    const platforms = named?.map((name) => `'${name.replace("syncguard-", "")}'`).join(", ");
    expect(await runFile("packaged.cjs", list)).toBe(`[ ${platforms} ]\n`);
  });

  it("needs only the C library of the system", () => {
    const needs = /needs ((lib(c|m|gcc_s)\.so\.\d+|ld-linux\S+)(, )?)+ and glibc 2\.\d+/;
    // Other systems' binaries are not read.
    if (process.platform !== "linux") expect(installed.packed).not.toContain("needs");
    else expect(installed.packed).toMatch(needs);
  });
});

it.each(Object.keys(PLATFORMS as object))("%s is named literally in the loader", (platform) => {
  const loader = readFileSync(join(root, "npm/syncguard/native/loader.ts"), "utf8");
  expect(loader).toContain(`require("syncguard-${platform}")`);
});

/** How TypeScript finds modules. `npm run check` asks for the types of each. */
const MODULES = [
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
] as const;

describe("the quick start", () => {
  it("runs as an ES module", async () => {
    expect(await runFile("quick.mjs", quickStart)).toMatch(EXPECTED);
  });

  it("runs as CommonJS", async () => {
    expect(await runFile("quick.cjs", asFunction(quickStart, false))).toMatch(EXPECTED);
  });

  const modules = process.env.SYNCGUARD_TESTS === "all" ? MODULES : MODULES.slice(0, 1);
  it.each(modules)(
    "compiles and runs with TypeScript's %s",
    async (_, source, output, options, code) => {
      writeFileSync(join(installed.folder, source), code);
      const types = ["--types", "node", "--typeRoots", join(root, "node_modules/@types")];
      const strict = ["--strict", "--target", "es2022", "--lib", "es2022,esnext.disposable"];
      const compiled = await installed.tsc(source, ...strict, ...types, ...options);
      expect(compiled).toEqual({ code: 0, stdout: "", stderr: "" });
      const { stdout, stderr } = await installed.node(output);
      expect(stderr).toBe("");
      expect(stdout).toMatch(EXPECTED);
    },
  );

  it("compiles without Node's types", async () => {
    writeFileSync(join(installed.folder, "dom.mts"), quickStart);
    const options = ["--strict", "--noEmit", "--module", "nodenext", "--target", "es2022"];
    // Without `lib`: the package itself asks for the types of `await using`.
    const compiled = await installed.tsc("dom.mts", ...options);
    expect(compiled).toEqual({ code: 0, stdout: "", stderr: "" });
  });
});
