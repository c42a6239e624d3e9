/** The public API on every runtime that is supported beside the one that runs the tests. */

import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
// @ts-expect-error a module of the scripts, in plain JavaScript
import { runtime, runtimeNames } from "../../scripts/lib/runtimes.mjs";
import { runProgram } from "../support/program";
import { type RedisServer, startRedis } from "../support/redis";
import { temporaryFolder } from "../support/temp";

const root = resolve(import.meta.dirname, "../..");
const names = [...(runtimeNames as string[]), "bun"];

let redis: RedisServer;
beforeAll(async () => {
  redis = await startRedis();
});
afterAll(async () => {
  await redis.stop();
});

/** The program of a runtime, and what stands before the file that it is to run. */
function commandOf(name: string): [string, string[]] {
  const program =
    name === "bun"
      ? join(root, "node_modules/.bin/bun")
      : (runtime as (name: string) => string)(name);
  if (!existsSync(program)) throw new Error(`${program} is missing: npm test fetches it`);
  return [program, name === "deno" ? ["run", "--no-check", "-A"] : []];
}

const TIME = { timeout: 180_000 };

describe.concurrent.each(names)("on %s", (name) => {
  it.each([
    ["ES modules", "api.mjs", ["SQLite file", "SQLite in memory", "Redis"]],
    ["CommonJS", "api.cjs", ["SQLite in memory", "Redis"]],
  ])("the API does what it says: %s", TIME, async (_, file, stores) => {
    const [program, flags] = commandOf(name);
    const args = [...flags, join(import.meta.dirname, file)];
    const { code, stdout, stderr } = await runProgram(program, args, { REDIS_URL: redis.url });
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    const lines = stdout.trim().split("\n");
    expect(lines.map((line) => line.replace(/: \d\d checks passed$/, ""))).toEqual(stores);
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
