/** The public API on every runtime that is supported: the one that runs the tests, and all others. */

import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import { runtime, runtimeNames } from "../../scripts/lib/runtimes.mjs";
import { runProgram } from "../support/program";
import { type RedisServer, startRedis } from "../support/redis";
import { temporaryFolder } from "../support/temp";

const root = resolve(import.meta.dirname, "../..");
const THIS = "this Node.js";
const names = [THIS, ...(runtimeNames as string[]), "bun"];

let redis: RedisServer;
beforeAll(async () => {
  redis = await startRedis();
});
afterAll(async () => {
  await redis.stop();
});

/** The program of a runtime, and what stands before the file that it is to run. */
function commandOf(name: string): [string, string[]] {
  const programs: Record<string, string> = {
    [THIS]: process.execPath,
    bun: join(root, "node_modules/.bin/bun"),
  };
  const program = programs[name] ?? (runtime as (name: string) => string)(name);
  if (!existsSync(program)) throw new Error(`${program} is missing: npm test fetches it`);
  return [program, name === "deno" ? ["run", "--no-check", "-A"] : []];
}

const TIME = { timeout: 600_000 };

describe.concurrent.each(names)("on %s", (name) => {
  it.each([
    ["ES modules", "api.mjs", ["SQLite file", "SQLite in memory", "Redis"]],
    ["CommonJS", "api.cjs", ["SQLite in memory", "Redis"]],
  ])("the API does what it says: %s", TIME, async (_, file, stores) => {
    const [program, flags] = commandOf(name);
    const args = [...flags, join(import.meta.dirname, file)];
    // It loses locks, and only in production nothing is printed of that.
    const env = { REDIS_URL: redis.url, NODE_ENV: "production" };
    const { code, stdout, stderr } = await runProgram(program, args, env);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    const lines = stdout.trim().split("\n");
    expect(lines.map((line) => line.replace(/: \d\d checks passed$/, ""))).toEqual(stores);
  });
});

describe("on Deno", () => {
  const deno = async (permissions: string[], env: Record<string, string> = {}) => {
    const [program] = commandOf("deno");
    const file = join(import.meta.dirname, "fixtures/permissions.mjs");
    const flags = ["run", "--no-prompt", "--no-check", ...permissions];
    return await runProgram(program, [...flags, file], { REDIS_URL: redis.url, ...env });
  };
  const documented = ["--allow-env", "--allow-read", "--allow-ffi"];

  it("locks need the permissions that are documented, and no more", TIME, async () => {
    const { code, stdout } = await deno(documented);
    expect({ code, stdout }).toEqual({ code: 0, stdout: "LOCKED\n" });
  });

  it.each(documented)("an error names them if %s is missing", TIME, async (missing) => {
    const given = documented.filter((each) => each !== missing);
    // Deno reads the modules of installed packages without asking, but not those of this repository.
    if (missing === "--allow-read") given.push(`--allow-read=${join(root, "dist")}`);
    const { stdout } = await deno(given);
    expect(stdout).toMatch(/^AuthFailed/);
    for (const permission of documented) expect(stdout).toContain(permission);
  });

  it("an error names what the default backend needs beside", TIME, async () => {
    const { stdout } = await deno(documented, { USE_DEFAULT: "1" });
    expect(stdout).toMatch(/^AuthFailed.*--allow-sys=homedir.*--allow-write/);
    // Not in memory: Deno lets nobody write below /dev who may not do everything.
    const folder = temporaryFolder(join(root, "node_modules"));
    const more = ["--allow-sys=homedir", `--allow-write=${folder.path}`];
    const env = { USE_DEFAULT: "1", XDG_STATE_HOME: folder.path, NODE_ENV: "test" };
    expect((await deno([...documented, ...more], env)).stdout).toBe("LOCKED\n");
    folder.remove();
  });
});

describe.concurrent("on the newest Node.js", () => {
  it("the suite of behaviour passes on SQLite and Redis", TIME, async () => {
    const [program] = commandOf("node-24");
    const folder = temporaryFolder();
    try {
      const report = join(folder.path, "report.json");
      const vitest = join(root, "node_modules/vitest/vitest.mjs");
      const { code, stdout } = await runProgram(program, [
        ...[vitest, "run", "__test__/behavior", "-t", "on (SQLite file|Redis at a URL)"],
        ...["--reporter=json", `--outputFile=${report}`, "--maxWorkers=1"],
      ]);
      const { numPassedTests, numFailedTests } = JSON.parse(readFileSync(report, "utf8")) as Record<
        string,
        number
      >;
      expect({ code, numFailedTests }, stdout).toEqual({ code: 0, numFailedTests: 0 });
      expect(numPassedTests).toBeGreaterThan(200);
    } finally {
      folder.remove();
    }
  });
});
