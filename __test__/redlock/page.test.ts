/** The programs of docs/redlock.md, on redlock and on this package. */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { blockMarked, documents, promisedOutput } from "../package/documents.js";
import { root } from "../package/installed.js";
import { runProgram } from "../support/program";
import { type RedisServer, startRedis } from "../support/redis";
import { temporaryFolder } from "../support/temp";

const page = documents.get("docs/redlock.md") ?? "";
let server: RedisServer;
const folder = temporaryFolder();
beforeAll(async () => {
  server = await startRedis();
});
afterAll(async () => {
  folder.remove();
  await server.stop();
});

/** Runs a program with the packages of the benchmarks, of which redlock is one. */
async function run(name: string, code: string): Promise<string[]> {
  const packages = join(root, "bench/alternatives/package.json");
  const required = code
    .replaceAll(
      /^import (\w+), \{ (.*) \} from (.*);$/gm,
      "const { default: $1, $2 } = require($3);",
    )
    .replaceAll(/^import (\w+) from (.*);$/gm, "const { default: $1 } = require($2);")
    .replaceAll(/^import (\{.*\}) from (.*);$/gm, "const $1 = require($2);")
    .replaceAll("redis://localhost:6379", server.url);
  const file = join(folder.path, `${name}.mjs`);
  const lines = [
    'import { createRequire } from "node:module";',
    `const require = createRequire(${JSON.stringify(packages)});`,
    required,
  ];
  writeFileSync(file, lines.join("\n"));
  const { code: exit, stdout, stderr } = await runProgram(process.execPath, [file]);
  expect({ exit, stderr }).toEqual({ exit: 0, stderr: "" });
  return stdout.trim().split("\n");
}

test.each(["redlock", "syncguard/redlock"])(
  "a program that imports %s finds the lock held, and works alone",
  async (library) => {
    const code = blockMarked("redlock-program").code.replace('from "redlock"', `from "${library}"`);
    expect(code).toContain(`from "${library}"`);
    const lines = ["account 1 is busy", "alone with account 1"];
    expect(await run(library.replace("/", "-"), code)).toEqual(lines);
  },
);

test("the page says what to import instead", () => {
  const [, library = ""] = /`import Redlock, \{ ExecutionError \} from "(.*)"`/.exec(page) ?? [];
  expect(library).toBe("syncguard/redlock");
});

test("withBoth excludes whoever has one of the locks", async () => {
  const { code, then } = blockMarked("redlock-both");
  const promised = promisedOutput(then);
  expect(promised).toHaveLength(4);
  expect(await run("redlock-both", code + then)).toEqual(promised);
});

test("withBoth tells of either lock that is lost, and the error of its signal can be thrown", async () => {
  const program = `${blockMarked("redlock-both").code}
const { setTimeout: sleep } = require("node:timers/promises");
// Each library's own keys.
for (const [name, pattern] of [["outer", "account:1"], ["inner", "syncguard:*account:1"]]) {
  const thrown = await withBoth(["account:1"], 1_000, async (signal) => {
    await redis.del(...(await redis.keys(pattern)));
    while (!signal.aborted) await sleep(5);
    throw signal.error;
  }).catch((error) => error);
  console.log(name, thrown?.name);
}
await after.quit();
`;
  const names = ["outer ExecutionError", "inner ExecutionError"];
  expect(await run("redlock-lost", program)).toEqual(names);
});
