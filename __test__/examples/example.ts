/** Examples, started as their package.json says. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { afterAll } from "vitest";
import { createSqliteBackend } from "syncguard/sqlite";
import { root } from "../package/installed.js";
import { temporaryFolder } from "../support/temp.js";
import { until } from "../support/until.js";

export type Example = {
  readonly child: ChildProcess;
  /** What it has printed, line by line. */
  readonly lines: string[];
  /** Resolves to its exit code or signal, and what it wrote to standard error. */
  readonly ended: Promise<{ code: number | string | null; stderr: string }>;
  /** The first line that matches, once it is there. */
  line: (pattern: RegExp) => Promise<string>;
  /** Whether somebody holds the lock on `key`. */
  isLocked: (key: string) => Promise<boolean>;
};

/** The compiler takes its time on a busy machine. */
export const PATIENCE_MS = 60_000;

const ends: (() => Promise<void>)[] = [];
afterAll(async () => {
  await Promise.all(ends.map((end) => end()));
});

/** Starts an example with its locks in a folder of its own. What still runs after all tests is killed. */
export function startExample(name: string, env: Record<string, string> = {}): Example {
  const cwd = join(root, "examples", name);
  const { scripts } = JSON.parse(readFileSync(join(cwd, "package.json"), "utf8")) as {
    scripts: { prestart?: string; start: string };
  };
  const folder = temporaryFolder();
  const file = join(folder.path, "locks.db");
  const command = [scripts.prestart, `exec ${scripts.start}`].filter(Boolean).join(" && ");
  const bin = join(root, "examples", "node_modules", ".bin");
  const child = spawn("sh", ["-c", command], {
    cwd,
    env: {
      ...process.env,
      ...{ PATH: `${bin}${delimiter}${process.env.PATH ?? ""}`, NODE_ENV: "test", PORT: "0" },
      ...{ SYNCGUARD_URL: `sqlite://${file}`, ...env },
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const lines: string[] = [];
  let [stdout, stderr] = ["", ""];
  child.stdout.setEncoding("utf8").on("data", (part: string) => {
    const complete = (stdout + part).split("\n");
    stdout = complete.pop() ?? "";
    lines.push(...complete);
  });
  child.stderr.setEncoding("utf8").on("data", (part: string) => (stderr += part));
  const ended = once(child, "close").then(([code, signal]) => ({
    code: (code ?? signal) as number | string | null,
    stderr,
  }));
  ends.push(async () => {
    child.kill("SIGKILL");
    await ended;
    folder.remove();
  });
  return {
    child,
    lines,
    ended,
    async line(pattern) {
      await until(() => {
        if (child.exitCode !== null && !lines.some((line) => pattern.test(line))) {
          throw new Error(`${name} ended without ${pattern}: ${lines.join("\n")}${stderr}`);
        }
        return lines.some((line) => pattern.test(line));
      }, PATIENCE_MS);
      return lines.find((line) => pattern.test(line)) ?? "";
    },
    async isLocked(key) {
      const backend = createSqliteBackend(file);
      try {
        return await backend.isLocked({ key });
      } finally {
        await backend.close();
      }
    },
  };
}

/** The URL that an example prints. */
export async function urlOf(example: Example): Promise<string> {
  return (await example.line(/^listening on /)).replace("listening on ", "");
}

/** Sends JSON, and gets the status and the answer. */
export async function post(url: string, body: unknown): Promise<{ status: number; body: unknown }> {
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", connection: "close" },
    body: JSON.stringify(body),
  });
  return { status: response.status, body: await response.json() };
}
