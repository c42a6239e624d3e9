/** The loops that keep every core awake while `npm run bench -- --busy` measures. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { availableParallelism, constants } from "node:os";
import { expect, test } from "vitest";
import { until } from "../support/until.js";

/** The bit of SIGKILL in a mask of signals. */
const SIGKILL = 1n << BigInt(constants.signals.SIGKILL - 1);

const BUSY = new URL("../../bench/lib/busy.mjs", import.meta.url).href;

// A process that keeps awake, says which processes do that, and waits.
const PROGRAM = `
  import { readFileSync } from "node:fs";
  const { keepAwake } = await import(${JSON.stringify(BUSY)});
  const end = await keepAwake();
  const path = \`/proc/\${process.pid}/task/\${process.pid}/children\`;
  console.log(readFileSync(path, "utf8").trim());
  process.stdin.resume().on("end", end);
`;

test.each(["SIGKILL", "the end"])(
  "there is one for each core, and none survives %s",
  async (how) => {
    const child = spawn(process.execPath, ["--input-type=module", "--eval", PROGRAM], {
      stdio: ["pipe", "pipe", "pipe"],
    });
    const stderr: Buffer[] = [];
    child.stderr.on("data", (chunk: Buffer) => stderr.push(chunk));
    const ended = once(child, "exit");
    if (process.platform !== "linux") {
      await ended;
      expect(Buffer.concat(stderr).toString()).toContain("--busy needs the idle class of Linux");
      return;
    }
    const [line] = (await once(child.stdout, "data")) as [Buffer];
    const loops = line.toString().trim().split(" ");
    expect(loops).toHaveLength(availableParallelism());
    for (const pid of loops) {
      // It is empty while the program begins, which takes long on a busy machine.
      const command = () => readFileSync(`/proc/${pid}/cmdline`, "utf8");
      await until(() => command() !== "");
      expect(command()).toContain("while :; do :; done");
      // The field of the policy is the 41st; 5 is SCHED_IDLE.
      const [, fields = ""] = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ");
      expect(fields.split(" ")[41 - 3]).toBe("5");
    }
    if (how === "SIGKILL") child.kill("SIGKILL");
    else child.stdin.end();
    await ended;
    await until(() => loops.every((pid) => !survives(pid)));
  },
);

/**
 * Whether a process is there that has not been killed. One that was killed runs no further instruction of its program, but
 * stays in the table while busy cores leave nothing to its class, and as a zombie until somebody waits for it.
 */
function survives(pid: string): boolean {
  let status: string;
  try {
    status = readFileSync(`/proc/${pid}/status`, "utf8");
  } catch {
    return false;
  }
  if (/^State:\s*[ZX]/m.test(status)) return false;
  const pending = [...status.matchAll(/^(?:SigPnd|ShdPnd):\s*([0-9a-f]+)$/gm)];
  return !pending.some(([, signals]) => (BigInt(`0x${signals}`) & SIGKILL) !== 0n);
}
