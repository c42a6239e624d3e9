/** The demo, in a pipe: its table, its exit code, and what it leaves behind. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { temporaryFolder } from "../support/temp.js";
import { until } from "../support/until.js";
import { root } from "./installed.js";

let temp: ReturnType<typeof temporaryFolder>;
let demo: ChildProcess & { printed: string };

beforeEach(() => {
  temp = temporaryFolder();
});
afterEach(() => {
  if (!isGone(demo)) process.kill(-groupOf(demo), "SIGKILL");
  temp.remove();
});

/** Starts the demo as the leader of a process group, which its workers belong to. */
function start(...args: string[]): Promise<number | null> {
  const child = spawn(process.execPath, [join(root, "demo/run.mjs"), ...args], {
    cwd: temp.path,
    env: { ...process.env, TMPDIR: temp.path },
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  demo = Object.assign(child, { printed: "" });
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (chunk: Buffer) => (demo.printed += chunk.toString()));
  }
  return once(child, "close").then(([code]) => code as number | null);
}

function groupOf({ pid }: ChildProcess): number {
  if (pid === undefined) throw new Error("the demo did not start");
  return pid;
}

function isGone(child: ChildProcess): boolean {
  const group = groupOf(child);
  try {
    process.kill(-group, 0);
    return false;
  } catch {
    return true;
  }
}

function cell(name: string): string {
  const row = demo.printed.split("\n").find((line) => line.startsWith(`| ${name} `));
  return row?.split("|")[2]?.trim() ?? "";
}

/** No process, not even for a moment, because it could still write a file; and no file. */
function expectNothingLeft(): void {
  expect(isGone(demo)).toBe(true);
  expect(readdirSync(temp.path)).toEqual([]);
}

it("pays everything once, through a kill and a stop", async () => {
  const code = await start();
  expect(demo.printed).toContain("All right.");
  expect(code).toBe(0);
  const payments = Number(cell("payments in the ledger"));
  expect(payments).toBeGreaterThanOrEqual(1000);
  expect(Number(cell("duplicate lines"))).toBeGreaterThanOrEqual(100);
  expect(cell("paid exactly once")).toBe(String(payments));
  expect(cell("paid twice")).toBe("0");
  expect(cell("lost")).toBe("0");
  expect(cell("account balances wrong")).toBe("0");
  expect(Number(cell("locks taken"))).toBeGreaterThanOrEqual(payments);
  expect(cell("waits for a lock")).toMatch(/^[1-9]\d* \(median \d+ ms, longest \d+ ms\)$/);
  expect(Number(cell("waiters woken by a release"))).toBeGreaterThan(0);
  expect(cell("its signal after SIGSTOP")).toBe("worker 3 told: LockLost");
  expect(cell("takeover after kill -9")).toMatch(/^by worker [134] after \d+\.\d\d s$/);
  const refused = /refused, fence (\d+) < (\d+)$/.exec(cell("stale write after SIGSTOP"));
  expect(Number(refused?.[1])).toBeLessThan(Number(refused?.[2]));
  expect(cell("its payment done by another process")).toBe("yes");
  // In a pipe there are lines, and no moving of the cursor.
  expect(demo.printed).not.toContain("\x1b");
  expectNothingLeft();
}, 90_000);

it("shows what happens without locks, and fails", async () => {
  const code = await start("--without-locks");
  expect(code).toBe(1);
  expect(Number(cell("paid twice"))).toBeGreaterThan(0);
  expect(demo.printed).toContain("WRONG");
  expectNothingLeft();
}, 90_000);

it("leaves nothing behind when it is ended, not even a stopped process", async () => {
  const ended = start();
  await until(() => demo.printed.includes("stopped (SIGSTOP)"), 60_000);
  demo.kill("SIGTERM");
  expect(await ended).toBe(143);
  expectNothingLeft();
}, 90_000);
