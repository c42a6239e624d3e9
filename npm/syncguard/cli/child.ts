/** The command that `exec` runs: as a process of its own, or with everything that it starts. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { CliError, Exit, exitCodeOfSignal } from "./exit.js";
import { Guardian } from "./guardian.js";
import { printable } from "./output.js";

/** How often to look whether a group of processes has ended. */
const LOOK_AGAIN_MS = 50;

/**
 * Whether we are in the foreground of a terminal, which then sends Ctrl-C to us and to the command.
 */
function isOnTerminal(): boolean {
  try {
    // The name of the program, in parentheses, may contain anything; after it come: state, parent, group, session,
    // terminal, and the group in the terminal's foreground.
    const stat = readFileSync("/proc/self/stat", "utf8");
    const [, , group, , terminal, foreground] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return terminal !== "0" && group === foreground;
  } catch {
    // Not on Linux.
    return process.stdin.isTTY || process.stderr.isTTY;
  }
}

export class Child {
  /**
   * Whether the command leads a group of processes, to which signals go. On a terminal it must stay in ours, or it could not
   * read from there.
   */
  private readonly leads: boolean;
  private readonly child: ChildProcess;
  private readonly guardian: Guardian;
  /** The exit code of the command, as shells give it. Rejects if it could not be started. */
  readonly ended: Promise<number>;

  /** @param graceMs - from SIGTERM to SIGKILL, if we are killed while the command runs */
  constructor(command: string, args: readonly string[], env: NodeJS.ProcessEnv, graceMs: number) {
    this.leads = process.platform !== "win32" && !isOnTerminal();
    this.guardian = new Guardian(graceMs);
    this.child = spawn(command, args, { stdio: "inherit", env, detached: this.leads });
    if (this.target !== undefined) this.guardian.watch(this.target);
    // The first error is that it could not be started; nothing that comes later may end us.
    this.child.on("error", () => undefined);
    this.ended = this.end(command);
  }

  /** The command, or, with a minus, its group; `undefined` if it could not be started. */
  private get target(): number | undefined {
    const { pid } = this.child;
    return pid === undefined || !this.leads ? pid : -pid;
  }

  /** The command has ended, and nobody has to end what it has started. */
  close(): void {
    this.guardian.dismiss();
  }

  private async end(command: string): Promise<number> {
    try {
      const [code, signal] = (await once(this.child, "exit")) as [
        number | null,
        NodeJS.Signals | null,
      ];
      return signal === null ? (code ?? Exit.INTERNAL) : exitCodeOfSignal(signal);
    } catch (error) {
      throw notStarted(command, error as NodeJS.ErrnoException);
    }
  }

  /** Passes on a signal that we were sent, unless the terminal has sent it to the command, too. */
  forward(signal: NodeJS.Signals): void {
    const isFromTerminal = (signal === "SIGINT" || signal === "SIGQUIT") && isOnTerminal();
    if (this.leads || !isFromTerminal) this.send(signal);
  }

  /** Ends the command: politely, and after `killAfterMs` by force. Resolves once it has ended. */
  async stop(killAfterMs: number): Promise<void> {
    this.send("SIGTERM");
    // A stopped process ends only when it continues.
    this.send("SIGCONT");
    const giveUp = new AbortController();
    const timer = setTimeout(() => {
      this.send("SIGKILL");
      giveUp.abort();
    }, killAfterMs);
    try {
      await this.ended.catch(() => undefined);
      // What the command has started may take longer.
      while (this.leads && this.send(0) && !giveUp.signal.aborted) await sleep(LOOK_AGAIN_MS);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Gives whether there was anybody to send it to. */
  private send(signal: NodeJS.Signals | 0): boolean {
    const { exitCode, signalCode } = this.child;
    if (this.target === undefined) return false;
    const hasEnded = exitCode !== null || signalCode !== null;
    if (!this.leads && hasEnded) return false;
    try {
      return process.kill(this.target, signal);
    } catch {
      return false;
    }
  }
}

/** The command's name is shown and its arguments are not: they may contain a password. */
function notStarted(command: string, error: NodeJS.ErrnoException): Error {
  const name = `the command ${printable(command)}`;
  if (error.code === "ENOENT") {
    return new CliError("NotFound", Exit.COMMAND_NOT_FOUND, `${name} was not found`);
  }
  const why = error.code === undefined ? error.message : error.code;
  return new CliError("NotExecutable", Exit.CANNOT_EXECUTE, `${name} cannot be run: ${why}`);
}
