/** Programs that end by themselves. */

import { execFile } from "node:child_process";
import { resolve } from "node:path";

const root = resolve(import.meta.dirname, "../..");

/** Runs a program in the project's folder to its end. It is killed after ten minutes, as long as the longest of its tests. */
export function runProgram(
  program: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
): Promise<{ code: number; stdout: string; stderr: string }> {
  // What vitest tells its own workers is not meant for others.
  const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith("VITEST"));
  const options = {
    cwd: root,
    env: { ...Object.fromEntries(inherited), NODE_ENV: "test", ...env },
    timeout: 600_000,
    maxBuffer: 64 * 1024 * 1024,
  };
  return new Promise((done) => {
    execFile(program, args, options, (error, stdout, stderr) => {
      const code = error === null ? 0 : typeof error.code === "number" ? error.code : 1;
      done({ code, stdout, stderr });
    });
  });
}
