// Running other programs.

import { spawn } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { constants as osConstants } from "node:os";
import { delimiter, join } from "node:path";
import { root, target } from "./paths.mjs";

// Nothing goes on when this process has ended, as it does at a signal.
const running = new Set();
process.on("exit", () => {
  for (const child of running) child.kill();
});

/**
 * Runs a program in the project's folder and resolves to `{ code, output, isLate }`. What it prints is shown
 * as it comes, unless `quiet`; standard output and standard error are captured together, and `onPrint` gets each piece of them. It is
 * killed, and is late, if it is not over after `limitMs`.
 */
export function run(command, args, { quiet = false, cwd = root, env = {}, limitMs, onPrint } = {}) {
  return new Promise((resolve) => {
    const child = spawn(command, args, {
      cwd,
      env: { ...process.env, CARGO_TARGET_DIR: target, ...env },
      stdio: ["ignore", "pipe", "pipe"],
      shell: process.platform === "win32" && /^(npm|npx)$/.test(command),
    });
    running.add(child);
    const chunks = [];
    for (const [from, to] of [
      [child.stdout, process.stdout],
      [child.stderr, process.stderr],
    ]) {
      from.on("data", (chunk) => {
        chunks.push(chunk);
        if (!quiet) to.write(chunk);
        onPrint?.(chunk.toString());
      });
    }
    let isLate = false;
    const limit =
      limitMs === undefined
        ? undefined
        : setTimeout(() => {
            isLate = true;
            child.kill("SIGKILL");
            // What it has started may still have them.
            child.stdout.destroy();
            child.stderr.destroy();
          }, limitMs);
    const done = (code) => {
      clearTimeout(limit);
      running.delete(child);
      resolve({ code, output: Buffer.concat(chunks).toString(), isLate });
    };
    child.on("error", (error) => {
      chunks.push(Buffer.from(`${command}: ${error.message}\n`));
      if (!quiet) process.stderr.write(chunks.at(-1));
      done(127);
    });
    child.on("close", (code, signal) => {
      if (signal) chunks.push(Buffer.from(`${command} ended by ${signal}\n`));
      done(code ?? 1);
    });
  });
}

/** As `run`, but a non-zero exit code is an error with all of the output in its message. */
export async function must(command, args, options = {}) {
  const result = await run(command, args, options);
  if (result.code !== 0) {
    const shown = options.quiet ? `\n${result.output}` : "";
    throw new Error(
      `\`${[command, ...args].join(" ")}\` failed (exit code ${result.code})${shown}`,
    );
  }
  return result;
}

/** The program of that name on the PATH, or undefined. */
export function which(command) {
  const names = process.platform === "win32" ? [`${command}.exe`, `${command}.cmd`] : [command];
  for (const folder of (process.env.PATH ?? "").split(delimiter).filter(Boolean)) {
    for (const name of names) {
      try {
        accessSync(join(folder, name), constants.X_OK);
        return join(folder, name);
      } catch {
        // Not here.
      }
    }
  }
  return undefined;
}

/** Runs a script's main function: an error ends the process with its message and exit code 1. */
export async function main(task) {
  try {
    process.exitCode = (await task()) ?? 0;
  } catch (error) {
    console.error(error instanceof Error && !process.env.DEBUG ? error.message : error);
    process.exitCode = 1;
  }
}

/**
 * Makes a signal end this process as an exit does. What it has started, such as servers, is stopped when it exits, which a signal
 * alone does not make it do; and a run without a result says why it has none.
 */
export function exitOnSignals() {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
    process.once(signal, () => {
      console.error(`ended by ${signal}: there is no result`);
      process.exit(128 + osConstants.signals[signal]);
    });
  }
}
