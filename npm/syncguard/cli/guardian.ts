/** Ends the command of `exec` when `exec` itself was killed, which leaves it no time to do so. */

import { type ChildProcess, spawn } from "node:child_process";
import type { Socket } from "node:net";

const LOOKS_PER_SECOND = 10;

/**
 * The first line says what to end: a process, or, with a minus, a group of them. The second says that nothing is left to do.
 * If the input ends without it, `exec` is gone. A process that was stopped gets a signal only when it continues.
 */
const SCRIPT = `
read -r target || exit 0
read -r done && exit 0
kill -s TERM -- "$target"
kill -s CONT -- "$target"
looks=$1
while [ "$looks" -gt 0 ] && kill -s 0 -- "$target"; do
  sleep ${1 / LOOKS_PER_SECOND}
  looks=$((looks - 1))
done
kill -s KILL -- "$target"
`;

/**
 * A shell that waits until our end of a pipe is closed. It is in a session of its own, so that it survives what kills our
 * group, as `timeout -k` and the runners of CI do.
 *
 * Linux can send a signal to a child whose parent ends (`PR_SET_PDEATHSIG`). It does not reach what the child has started,
 * would have to be asked for between fork and exec, and other systems have nothing like it.
 */
export class Guardian {
  private readonly shell: ChildProcess | undefined;

  /** @param graceMs - from SIGTERM to SIGKILL */
  constructor(graceMs: number) {
    // Windows ends the children of a process with it.
    if (process.platform === "win32") return;
    const looks = Math.ceil((graceMs / 1000) * LOOKS_PER_SECOND);
    this.shell = spawn("/bin/sh", ["-c", SCRIPT, "syncguard", String(looks)], {
      stdio: ["pipe", "ignore", "ignore"],
      detached: true,
    });
    // Without a shell, the command runs unguarded. Nothing of this may keep us alive, or end us.
    this.shell.on("error", () => undefined).unref();
    this.shell.stdin?.on("error", () => undefined);
    (this.shell.stdin as Socket | null)?.unref();
  }

  /** Ends a process, or, with a negative number, a group, once we are gone. */
  watch(target: number): void {
    this.shell?.stdin?.write(`${target}\n`);
  }

  /** Nothing is left to end. */
  dismiss(): void {
    this.shell?.stdin?.end("done\n");
  }
}
