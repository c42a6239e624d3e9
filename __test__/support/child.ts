/** Programs in processes of their own. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished } from "vitest";

const fixtures = fileURLToPath(new URL("../process/fixtures/", import.meta.url));
const modules = fileURLToPath(new URL("../../node_modules/", import.meta.url));

export type Runtime = "node" | "bun";

/** Whom processes are asked of: `npm run test:all` asks both. */
export const runtimes: Runtime[] =
  process.env.SYNCGUARD_TESTS === "all" ? ["node", "bun"] : ["node"];

export type Finished = {
  code: number | null;
  signal: string | null;
  stdout: string;
  stderr: string;
};

/** A fixture that runs. */
export function start(
  runtime: Runtime,
  fixture: string,
  args: string[] = [],
  env: Record<string, string> = {},
) {
  const program = runtime === "node" ? process.execPath : bun();
  const flags = runtime === "node" ? ["--unhandled-rejections=strict", "--expose-gc"] : [];
  return startProgram(program, [...flags, fixtures + fixture, ...args], {
    NODE_ENV: "test",
    ...env,
  });
}

/** A program that runs. It is killed when the test ends, if it has not ended before. */
export function startProgram(
  program: string,
  args: string[],
  env: Record<string, string | undefined>,
) {
  const child = spawn(program, args, {
    env: { ...process.env, ...env },
    stdio: ["pipe", "pipe", "pipe"],
  });
  onTestFinished(() => {
    child.kill("SIGKILL");
  });
  let stdout = "";
  let stderr = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
    child.emit("line");
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  child.on("error", (error) => {
    stderr += String(error);
  });
  const finished = once(child, "close").then(([code, signal]): Finished => {
    // Whoever waits for a line waits no longer.
    child.emit("line");
    return { code: code as number | null, signal: signal as string | null, stdout, stderr };
  });
  return {
    child,
    finished,
    /** What it has printed so far. */
    stdout: () => stdout,
    /** Resolves once the program has printed `text`. */
    async printed(text: string): Promise<void> {
      while (!stdout.includes(text)) {
        if (child.exitCode !== null || child.signalCode !== null) {
          throw new Error(`the program ended without printing ${text}: ${stdout}${stderr}`);
        }
        await once(child, "line");
      }
    },
  };
}

/** What becomes of a program that runs to its end. */
export async function run(...args: Parameters<typeof start>): Promise<Finished> {
  return await start(...args).finished;
}

/** Runs a program that prints "done" and the time when it has nothing more to do, and must then end by itself. */
export async function expectToEnd(...args: Parameters<typeof start>): Promise<void> {
  const { finished, printed } = start(...args);
  await printed("done");
  const { code, stdout, stderr } = await finished;
  const endedMs = Date.now() - Number(stdout.split(" ")[1]);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  // What is idle, or has five seconds, would keep it for longer.
  expect(endedMs).toBeLessThan(4_500);
}

/** Bun's binary: where its install script puts it, or where it comes from if such scripts do not run. */
function bun(): string {
  const folder = join(modules, "@oven");
  const downloaded = readdirSync(folder)
    .flatMap((name) => [join(folder, name, "bin", "bun"), join(folder, name, "bin", "bun.exe")])
    .find((path) => existsSync(path));
  return downloaded ?? join(modules, "bun", "bin", "bun.exe");
}
