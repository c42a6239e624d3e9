/** The documents: what they show compiles and runs, and what they list is there. */

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Client } from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import { filesUnder } from "../../scripts/lib/paths.mjs";
import { startEmulator } from "../support/firestore";
import { startPostgres } from "../support/postgres";
import { startRedis } from "../support/redis";
import { type Block, blocks, blocksOf, documents, promisedOutput } from "./documents.js";
import { type Ended, type Installed, root } from "./installed.js";
import { compile, faultsIn, installForReaders, writeBlock } from "./readers.js";

/** Languages, and the marks that they may have. Whatever else stands in a document would be tested by nobody. */
const KINDS: Readonly<Record<string, readonly string[]>> = {
  ts: ["check", "run", "redis", "postgres", "firestore", "vitest"],
  js: [
    ...["run", "redis", "postgres", "firestore", "quick-start", "bundle"],
    // __test__/redlock/page.test.ts.
    ...["redlock-before", "redlock-after", "redlock-both"],
  ],
  sql: ["postgres"],
  sh: ["", "redis"],
  rust: [""],
  json: [""],
  text: [""],
};

// A test of vitest's is run by vitest: __test__/testing/docs.test.ts.
const typescript = blocks.filter(({ language, mark }) => language === "ts" && mark !== "vitest");
const runnable = blocks.filter(({ mark }) => mark === "run");
const ofLanguage = (language: string): Block[] =>
  blocks.filter((each) => each.language === language);
const nameOf = (block: Block): string => `block${blocks.indexOf(block)}`;

let installed: Installed;
/** What the compiler says, once for all blocks. */
let compiled: Ended;

beforeAll(async () => {
  installed = await installForReaders();
  for (const block of typescript) writeBlock(installed, `${nameOf(block)}.mts`, block);
  compiled = await compile(
    installed,
    typescript.map((block) => `${nameOf(block)}.mts`),
  );
}, 120_000);
afterAll(() => {
  installed.remove();
});

/** Runs a block in a folder of its own, and returns what was wrong. */
async function run(block: Block, env: NodeJS.ProcessEnv, from = "", to = ""): Promise<unknown> {
  const name = nameOf(block);
  mkdirSync(join(installed.folder, name));
  if (block.language === "js") writeBlock(installed, `${name}.mjs`, block);
  const source = join(installed.folder, `${name}.mjs`);
  const code = readFileSync(source, "utf8").replaceAll(from === "" ? "\0" : from, () => to);
  writeFileSync(join(installed.folder, name, "main.mjs"), code);
  const { code: exit, stdout, stderr } = await installed.nodeAt(name, env, "main.mjs");
  const wanted = promisedOutput(block.code);
  const printed = stdout.split("\n").filter((line) => wanted.includes(line));
  return { exit, stderr, printed, wanted };
}

const fine = (block: Block): unknown => {
  const wanted = promisedOutput(block.code);
  return { exit: 0, stderr: "", printed: wanted, wanted };
};

describe("the blocks of code", () => {
  it("are all of a kind that is tested", () => {
    const others = blocks.filter(({ language, mark }) => KINDS[language]?.includes(mark) !== true);
    expect(others.map(({ place, language, mark }) => `${place}: ${language} ${mark}`)).toEqual([]);
    expect(runnable.length).toBeGreaterThanOrEqual(10);
  });

  it("are all found", () => {
    for (const [path, text] of documents) {
      const fences = text.match(/^[ \t>]*(```|~~~)/gm) ?? [];
      expect([path, fences.length]).toEqual([path, 2 * blocksOf(path, text).length]);
    }
  });

  it.each(typescript)("in TypeScript compile: $place", (block) => {
    expect(faultsIn(compiled, `${nameOf(block)}.mts`)).toEqual([]);
  });

  it("in TypeScript give the compiler no other trouble", () => {
    expect(compiled).toEqual({ code: 0, stdout: "", stderr: "" });
  });

  it.each(ofLanguage("json"))("in JSON parse: $place", ({ code }) => {
    expect(JSON.parse(code)).toBeTypeOf("object");
  });

  it.each(ofLanguage("sh"))("for a shell call what is there: $place", ({ code }) => {
    expect(shellFaults(code)).toEqual([]);
  });

  it.each(ofLanguage("rust"))("in Rust stand in what cargo compiles: $place", ({ code }) => {
    expect(rustSources().some((source) => source.includes(dense(code)))).toBe(true);
  });
});

describe.concurrent("the blocks that run", { timeout: 120_000 }, () => {
  it.each(runnable)("do, and print what they promise: $place", async (block) => {
    expect(await run(block, {})).toEqual(fine(block));
  });

  it("on Redis do", async () => {
    const server = await startRedis();
    try {
      const cli = (line: string): string =>
        execFileSync("redis-cli", ["-p", `${server.port}`, ...line.split(" ").slice(1)], {
          encoding: "utf8",
        });
      for (const block of blocks.filter(({ mark }) => mark === "redis")) {
        if (block.language === "sh") {
          for (const line of block.code.trim().split("\n")) expect(cli(line)).not.toMatch(/^ERR/);
          continue;
        }
        const result = await run(block, {}, "redis://localhost:6379", server.url);
        expect([block.place, result]).toEqual([block.place, fine(block)]);
      }
    } finally {
      await server.stop();
    }
  });

  it("on PostgreSQL do", async () => {
    const server = await startPostgres();
    const client = new Client(server.url);
    try {
      await client.connect();
      for (const block of blocks.filter(({ mark }) => mark === "postgres")) {
        if (block.language === "sql") {
          await client.query(block.code);
          continue;
        }
        const result = await run(block, {}, "postgres://app:secret@localhost/app", server.url);
        expect([block.place, result]).toEqual([block.place, fine(block)]);
      }
    } finally {
      await client.end();
      await server.stop();
    }
  });

  it("on Firestore do", async () => {
    const emulator = await startEmulator();
    try {
      const env = { FIRESTORE_EMULATOR_HOST: emulator.host, METADATA_SERVER_DETECTION: "none" };
      for (const block of blocks.filter(({ mark }) => mark === "firestore")) {
        const result = await run(block, env);
        expect([block.place, result]).toEqual([block.place, fine(block)]);
      }
    } finally {
      await emulator.stop();
    }
  });
});

describe("the lists", () => {
  it("explain every error code", () => {
    const text = documents.get("docs/errors.md") ?? "";
    const codes = [...text.matchAll(/^\| `([A-Z]\w+)` +\|/gm)].map(([, code]) => code);
    expect(codes.sort()).toEqual([
      ...["Aborted", "AcquisitionTimeout", "AuthFailed", "Internal"],
      ...["InvalidArgument", "LockLost", "NetworkTimeout", "RateLimited", "ServiceUnavailable"],
    ]);
  });

  // `await using` is a syntax error on Node.js 20 and 22, so it is shown beside what works there, and with a note.
  it.each([...documents.keys()])("begin with what runs on every version: %s", (path) => {
    const programs = blocks.filter(
      ({ place, language }) => place.startsWith(`${path}:`) && ["js", "ts"].includes(language),
    );
    const uses = programs.filter(({ code }) => code.includes("await using"));
    expect(uses).not.toContain(programs[0]);
    expect(uses.filter(({ language }) => language === "js")).toEqual([]);
    if (uses.length > 0) expect(documents.get(path)).toMatch(/Node\.js 24/);
  });

  it("begin with the two commands that are all a newcomer needs", () => {
    const [first] = blocks;
    expect(first?.place).toMatch(/^README\.md:/);
    const named = [...(first?.code ?? "").matchAll(/^npm (?:run )?(\w+)/gm)].map(
      ([, name]) => name,
    );
    expect(named).toEqual(["demo", "test"]);
  });
});

/** What commands in `code` call that is not there. */
function shellFaults(code: string): string[] {
  const manifest = readJson("package.json") as {
    scripts: Record<string, string>;
    bin?: Record<string, string>;
  };
  const isThere = (path = ""): boolean => existsSync(join(root, path));
  return code.split("\n").flatMap((line) => {
    // Variables before a command, a comment after it, and lines that go on with a text of JSON.
    const words = line
      .replace(/ #.*$/, "")
      .replace(/^([A-Z_]+=\S* )+/, "")
      .split(/\s+/);
    const [program = "", first = "", second = ""] = words;
    if (!/^[a-z][\w-]*$/.test(program)) return [];
    const fault = [`${program} ${first} ${second}`.trim()];
    switch (program) {
      case "export":
        return /^[A-Z_]+=\S+$/.test(first) ? [] : fault;
      case "npm":
        if (first === "run") return second in manifest.scripts ? [] : fault;
        return first in manifest.scripts || ["install", "ci"].includes(first) ? [] : fault;
      // In crontabs and scripts of servers it is installed for all.
      case "syncguard":
        return "syncguard" in (manifest.bin ?? {}) ? [] : fault;
      case "npx":
        if (first === "syncguard") return "syncguard" in (manifest.bin ?? {}) ? [] : fault;
        return isThere(`node_modules/.bin/${first}`) ? [] : fault;
      case "node":
        return isThere(first) ? [] : fault;
      case "bash":
        return isThere(first) ? [] : fault;
      case "cargo": {
        const named = words[words.indexOf("-p") + 1] ?? "";
        const isMember = ["crates", "verify", "examples"].some((folder) =>
          isThere(`${folder}/${named}/Cargo.toml`),
        );
        return words.includes("-p") && !isMember ? fault : [];
      }
      case "curl":
      case "redis-cli":
        return [];
      default:
        return fault;
    }
  });
}

function readJson(path: string): unknown {
  return JSON.parse(readFileSync(join(root, path), "utf8"));
}

let rust: string[] | undefined;
/** The Rust of this repository, examples in comments included, without what separates words. */
function rustSources(): string[] {
  const isRust = (path: string): boolean => path.endsWith(".rs");
  rust ??= (filesUnder as (folder: string, keep: (path: string) => boolean) => string[])(
    join(root, "crates"),
    isRust,
  ).map((path) => {
    const lines = readFileSync(path, "utf8").split("\n");
    // In a comment, lines that begin with # are compiled and not shown.
    const shown = lines.filter((line) => !/^\s*\/\/[/!] # /.test(line));
    return dense(shown.map((line) => line.replace(/^\s*\/\/[/!] ?/, "")).join("\n"));
  });
  return rust;
}

function dense(code: string): string {
  return code.replace(/\s+/g, "");
}
