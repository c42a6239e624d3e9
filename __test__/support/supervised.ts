/** Server programs that end with the process that started them, however it ends. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readFileSync } from "node:fs";
import type { Socket } from "node:net";
import { until } from "./until";

export type Supervised = {
  readonly child: ChildProcess;
  /** Ends the program with its signal, and waits until it is gone. */
  stop: () => Promise<void>;
};

/** Whose programs they are: PostgreSQL and PgBouncer refuse root. */
export const isRoot = process.getuid?.() === 0;
export const owner = isRoot ? "postgres" : undefined;

/**
 * Starts `command`, as {@link owner} or as another user. A shell sends it `signal` when its own standard input closes, which
 * happens also when this process is killed.
 */
export async function startSupervised(
  command: readonly string[],
  signal: string,
  logFile: string,
  isReady: () => boolean,
  user: string | undefined = owner,
): Promise<Supervised> {
  const script = `"$@" <&- & child=$!; read line; kill -${signal} $child; wait $child`;
  const log = openSync(logFile, "a");
  const child = spawn("sh", ["-c", script, "sh", ...asUser(command, user)], {
    cwd: "/",
    stdio: ["pipe", log, log],
  });
  closeSync(log);
  child.unref();
  const input = child.stdin as Socket;
  input.unref();
  let failure: Error | undefined;
  child.on("error", (error) => (failure = error));
  const stop = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null || failure !== undefined) return;
    child.ref();
    const ended = once(child, "exit");
    input.end();
    await ended;
  };
  const mark = `did not get ready: ${command[0]}`;
  try {
    await until(() => {
      if (failure !== undefined) throw failure;
      return isReady();
    }, 60_000);
  } catch (error) {
    await stop();
    throw new Error(`${mark}\n${readFileSync(logFile, "utf8")}`, { cause: error });
  }
  return { child, stop };
}

/** A command as the user who may run servers. */
export function asOwner(command: readonly string[]): string[] {
  return asUser(command, owner);
}

function asUser(command: readonly string[], user: string | undefined): string[] {
  if (user === undefined) return [...command];
  return ["setpriv", `--reuid=${user}`, `--regid=${user}`, "--clear-groups", ...command];
}
