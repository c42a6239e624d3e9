/** `npm run example`: what it says to those who do not know the names, and that it ends what it has started. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { root } from "../package/installed.js";
import { runProgram } from "../support/program.js";
import { PATIENCE_MS } from "./example.js";

const folder = join(root, "examples");
const names = readdirSync(folder).filter((name) => existsSync(join(folder, name, "README.md")));

/** The names in a list that was printed. */
function listed(text: string): string[] {
  return [...text.matchAll(/^ {2}([\w-]+) +\S/gm)].map(([, name = ""]) => name);
}

test("without a name, the examples are listed", async () => {
  const { code, stdout, stderr } = await runProgram(process.execPath, ["scripts/example.mjs"]);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(listed(stdout)).toEqual(names);
});

test("a name that is not there is refused, and the examples are listed", async () => {
  const args = ["scripts/example.mjs", "fastfy"];
  const { code, stdout, stderr } = await runProgram(process.execPath, args);
  expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
  expect(stderr).toMatch(/^there is no example fastfy\n/);
  expect(listed(stderr)).toEqual(names);
});

test("SIGTERM reaches the example", { timeout: PATIENCE_MS }, async () => {
  const args = ["scripts/example.mjs", "--built", "fastify"];
  const child = spawn(process.execPath, args, {
    cwd: root,
    env: { ...process.env, PORT: "0" },
    stdio: ["ignore", "pipe", "inherit"],
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  const ended = once(child, "exit");
  let text = "";
  let url: string | undefined;
  for await (const part of child.stdout.setEncoding("utf8")) {
    text += part as string;
    url = /^listening on (\S+)\n/m.exec(text)?.[1];
    if (url === undefined) continue;
    expect((await fetch(url, { headers: { connection: "close" } })).status).toBe(404);
    child.kill("SIGTERM");
    break;
  }
  expect(await ended).toEqual([0, null]);
  await expect(fetch(url as string)).rejects.toThrow("fetch failed");
});
