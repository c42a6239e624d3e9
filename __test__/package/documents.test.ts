/** The documents: what they show compiles and runs, and what they list is there. */

import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import type { Server } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { format } from "prettier";
import { Client } from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { setupSchema } from "syncguard/postgres";
// @ts-expect-error a module of the scripts, in plain JavaScript
import { filesUnder } from "../../scripts/lib/paths.mjs";
import { startEmulator } from "../support/firestore";
import { type PostgresServer, startPostgres } from "../support/postgres";
import { type RedisServer, startRedis } from "../support/redis";
import { type Block, blocks, blocksOf, documents, promisedOutput } from "./documents.js";
import { type Ended, type Installed, root } from "./installed.js";
import { compile, faultsIn, installForReaders, writeBlock } from "./readers.js";

/** Languages, and the marks that they may have. Whatever else stands in a document would be tested by nobody. */
const KINDS: Readonly<Record<string, readonly string[]>> = {
  ts: ["check", "run", "redis", "postgres", "firestore", "vitest", "example"],
  js: [
    ...["run", "redis", "postgres", "firestore", "dynamodb", "example", "quick-start", "bundle"],
    // __test__/redlock/page.test.ts.
    ...["redlock-program", "redlock-both"],
  ],
  sql: ["postgres"],
  sh: ["", "redis"],
  rust: [""],
  yaml: [""],
  json: [""],
  prisma: [""],
  text: [""],
};

// A test of vitest's is run by vitest: __test__/testing/docs.test.ts.
// One of an example stands in that example, which its own tests start.
const typescript = blocks.filter(
  ({ language, mark }) => language === "ts" && !["vitest", "example"].includes(mark),
);
const markedFor = (mark: string): Block[] => blocks.filter((each) => each.mark === mark);
/** Those of them that run. Programs on the libraries of others run in `npm run test:all`. */
const runningOn = (mark: string): Block[] =>
  markedFor(mark).filter(
    ({ place }) =>
      process.env.SYNCGUARD_TESTS === "all" || !/^docs\/(migrating\/|recipes\/orm)/.test(place),
  );
const runnable = runningOn("run");
const ofLanguage = (language: string): Block[] =>
  blocks.filter((each) => each.language === language);
const nameOf = (block: Block): string => `block${blocks.indexOf(block)}`;

let installed: Installed;
/** What the compiler says, once for all blocks. */
let compiled: Ended;

beforeAll(async () => {
  installed = await installForReaders();
  for (const { code } of ofLanguage("prisma")) generatePrismaClient(code);
  for (const block of typescript) writeBlock(installed, `${nameOf(block)}.mts`, block);
  compiled = await compile(
    installed,
    typescript.map((block) => `${nameOf(block)}.mts`),
  );
}, 600_000);
afterAll(() => {
  installed.remove();
});

/** What `prisma generate` does in a project. */
function generatePrismaClient(code: string): void {
  const project = join(root, "examples");
  const schema = join(installed.folder, "schema.prisma");
  writeFileSync(schema, code);
  const prisma = join(project, "node_modules/prisma/build/index.js");
  // Prisma would download the engine for migrations, which this command does not call. The newer versions of itself are not asked for.
  const env = { PRISMA_SCHEMA_ENGINE_BINARY: process.execPath, CHECKPOINT_DISABLE: "1" };
  execFileSync(process.execPath, [prisma, "generate", "--no-hints", "--schema", schema], {
    cwd: project,
    env: { ...process.env, ...env },
    stdio: "pipe",
  });
}

/** Runs a block in a folder of its own, and returns what was wrong. */
async function run(block: Block, env: NodeJS.ProcessEnv, from = "", to = ""): Promise<unknown> {
  const name = nameOf(block);
  mkdirSync(join(installed.folder, name));
  if (block.language === "js") writeBlock(installed, `${name}.mjs`, block);
  const source = join(installed.folder, `${name}.mjs`);
  const code = readFileSync(source, "utf8").replaceAll(from === "" ? "\0" : from, () => to);
  writeFileSync(join(installed.folder, name, "main.mjs"), code);
  const { code: exit, stdout, stderr } = await installed.nodeAt(name, env, "main.mjs");
  const wanted = promisedOutput(block.code + block.then);
  const printed = stdout.split("\n").filter((line) => wanted.includes(line));
  return { exit, stderr, printed, wanted };
}

const fine = (block: Block): unknown => {
  const wanted = promisedOutput(block.code + block.then);
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

  it.each(ofLanguage("yaml"))("in YAML are well formed: $place", async ({ code }) => {
    expect(await format(code, { parser: "yaml" })).toBe(code);
  });

  it.each(markedFor("example"))("of an example stand in it: $place", ({ code }) => {
    expect(exampleSources().some((source) => source.includes(dense(code)))).toBe(true);
  });

  it.each(ofLanguage("sh"))("for a shell call what is there: $place", ({ code }) => {
    expect(shellFaults(code)).toEqual([]);
  });

  it.each(ofLanguage("rust"))("in Rust stand in what cargo compiles: $place", ({ code }) => {
    expect(rustSources().some((source) => source.includes(dense(code)))).toBe(true);
  });
});

describe.concurrent("the blocks that run", { timeout: 600_000 }, () => {
  it.each(runnable)("do, and print what they promise: $place", async (block) => {
    expect(await run(block, {})).toEqual(fine(block));
  });

  describe("on Redis", { concurrent: false }, () => {
    let server: RedisServer;
    let page: string | undefined;
    beforeAll(async () => {
      server = await startRedis();
    });
    afterAll(() => server.stop());

    it.each(runningOn("redis"))("do, and print what they promise: $place", async (block) => {
      // Each page begins with an empty server, so that it may name its keys as it likes.
      const before = page;
      [page] = block.place.split(":");
      if (page !== before) execFileSync("redis-cli", ["-p", `${server.port}`, "flushall"]);
      if (block.language === "sh") {
        for (const line of block.code.trim().split("\n")) {
          const args = ["-p", `${server.port}`, ...line.split(" ").slice(1)];
          expect(execFileSync("redis-cli", args, { encoding: "utf8" })).not.toMatch(/^ERR/);
        }
        return;
      }
      expect(await run(block, {}, "redis://localhost:6379", server.url)).toEqual(fine(block));
    });
  });

  describe("on PostgreSQL", { concurrent: false }, () => {
    let server: PostgresServer;
    // Each page has a database of its own with our tables, so that it may name those of its readers as it likes.
    const databases = new Map<string, string>();
    beforeAll(async () => {
      server = await startPostgres();
    });
    afterAll(() => server.stop());

    it.each(runningOn("postgres"))("do, and print what they promise: $place", async (block) => {
      const page = block.place.replace(/:\d+$/, "");
      let database = databases.get(page);
      if (database === undefined) {
        const name = `page${databases.size}`;
        await queryOnce(server.url, `CREATE DATABASE ${name}`);
        database = server.url.replace("/postgres?", `/${name}?`);
        await setupSchema(database);
        databases.set(page, database);
      }
      if (block.language === "sql") {
        await queryOnce(database, block.code);
        return;
      }
      const result = await run(block, {}, "postgres://app:secret@localhost/app", database);
      expect(result).toEqual(fine(block));
    });
  });

  describe("on DynamoDB", { concurrent: false }, () => {
    // A server in JavaScript, which only the examples need.
    const dynalite = createRequire(join(root, "examples/package.json"))("dynalite") as (options: {
      createTableMs: number;
    }) => Server;
    let server: Server;
    let locks: RedisServer;
    beforeAll(async () => {
      server = dynalite({ createTableMs: 0 });
      await once(server.listen(0, "127.0.0.1"), "listening");
      locks = await startRedis();
    });
    afterAll(async () => {
      server.close();
      await locks.stop();
    });

    it.each(runningOn("dynamodb"))("do, and print what they promise: $place", async (block) => {
      const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
      const env = {
        AWS_ENDPOINT_URL_DYNAMODB: url,
        AWS_ACCESS_KEY_ID: "local",
        AWS_SECRET_ACCESS_KEY: "local",
        // Otherwise the client says on stderr which versions of Node.js it will need.
        AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED: "true",
      };
      expect(await run(block, env, "redis://localhost:6379", locks.url)).toEqual(fine(block));
    });
  });

  it("on Firestore do", async () => {
    const emulator = await startEmulator();
    try {
      const env = { FIRESTORE_EMULATOR_HOST: emulator.host, METADATA_SERVER_DETECTION: "none" };
      for (const block of runningOn("firestore")) {
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

async function queryOnce(url: string, text: string): Promise<void> {
  const client = new Client(url);
  await client.connect();
  try {
    await client.query(text);
  } finally {
    await client.end();
  }
}

function readJson(path: string): unknown {
  return JSON.parse(readFileSync(join(root, path), "utf8"));
}

type FilesUnder = (folder: string, keep: (path: string) => boolean) => string[];
/** The JavaScript and TypeScript of the examples, without what separates words. */
function exampleSources(): string[] {
  const list = ["ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", "examples"];
  const paths = execFileSync("git", list, { cwd: root, encoding: "utf8" }).split("\0");
  return paths
    .filter((path) => /\.(mjs|ts)$/.test(path) && existsSync(join(root, path)))
    .map((path) => dense(readFileSync(join(root, path), "utf8")));
}

let rust: string[] | undefined;
/** The Rust of this repository, examples in comments included, without what separates words. */
function rustSources(): string[] {
  const isRust = (path: string): boolean => path.endsWith(".rs");
  rust ??= (filesUnder as FilesUnder)(join(root, "crates"), isRust).map((path) => {
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
