/** `syncguard exec`: whose exit code is whose, and what happens to the command when something goes wrong. */

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createSqliteBackend } from "syncguard/sqlite";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { startProgram } from "../support/child";
import { cli, json, main, startCli } from "../support/cli";
import { isFromTheClock } from "../support/fences";
import { temporaryFolder } from "../support/temp";
import { until } from "../support/until";

let folder: ReturnType<typeof temporaryFolder>;
let url: string;
beforeEach(() => {
  folder = temporaryFolder();
  url = `sqlite:${folder.path}/locks.db`;
});
afterEach(() => {
  folder.remove();
});

/** Runs a shell script under the lock "k". */
const exec = (script: string, ...options: string[]) =>
  startCli(url, "exec", "k", ...options, "--", "sh", "-c", script);

/** A process that does not end by SIGTERM, and has another one. It writes their ids. */
const stubborn = 'trap "" TERM; sh -c "while :; do sleep 0.05; done" & echo $$ $!; wait; wait';

/** What it writes. */
const PIDS = /^(\d+) (\d+)$/m;

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    // It may have ended, and nobody has taken note of it yet.
    return !readFileSync(`/proc/${pid}/stat`, "utf8").includes(") Z ");
  } catch {
    return false;
  }
}

async function expectFree(): Promise<void> {
  expect(await json(1, url, "status", "k")).toEqual({ locked: false });
}

describe("the exit code", () => {
  it("is the command's, which has the key and the fence, and our input and output", async () => {
    const running = exec('read line; echo "$line $SYNCGUARD_KEY $SYNCGUARD_FENCE"; exit 7');
    running.child.stdin.end("hello\n");
    const { code, stdout, stderr } = await running.finished;
    expect({ code, stderr }).toEqual({ code: 7, stderr: "" });
    expect(stdout).toMatch(/^hello k \d{15}\n$/);
    await expectFree();
  });

  it("is 128 and the number of the signal that ended the command", async () => {
    const { code } = await exec("kill -KILL $$").finished;
    expect(code).toBe(137);
    await expectFree();
  });

  it("is 127 for a command that is not there, and 126 for one that cannot be run", async () => {
    const missing = await cli(url, "exec", "k", "--", join(folder.path, "missing"));
    expect(missing).toMatchObject({
      code: 127,
      stderr: expect.stringContaining(`${join(folder.path, "missing")} was not found`) as string,
    });
    const noProgram = await cli(url, "exec", "k", "--", folder.path);
    expect(noProgram.code).toBe(126);
    expect(noProgram.stderr).toContain(`${folder.path} cannot be run`);
    await expectFree();
  });

  it("is 75 if somebody else holds the lock, at once or after --wait, and nothing was run", async () => {
    const backend = createSqliteBackend(join(folder.path, "locks.db"));
    const held = await backend.lock("k");
    const { code, stdout, stderr } = await exec("echo ran").finished;
    expect({ code, stdout }).toEqual({ code: 75, stdout: "" });
    expect(stderr).toContain("somebody else holds the lock");
    const waited = await exec("echo ran", "--wait", "200ms", "--json").finished;
    expect({ code: waited.code, stdout: waited.stdout }).toEqual({ code: 75, stdout: "" });
    expect(JSON.parse(waited.stderr)).toMatchObject({ error: { code: "Locked" } });
    await held.release();
    await backend.close();
  });

  it("is 69 if the store cannot be reached", async () => {
    const { code, stdout } = await cli("redis://127.0.0.1:1", "exec", "k", "--", "echo", "ran");
    expect({ code, stdout }).toEqual({ code: 69, stdout: "" });
  });
});

it("gets the lock when it is released while it waits", async () => {
  const first = exec("echo started; read line");
  await first.printed("started");
  const second = exec("echo mine", "--wait", "20s");
  // It has asked for the lock once there is a second process, which is all that can be seen from here.
  first.child.stdin.end("\n");
  expect((await first.finished).code).toBe(0);
  expect(await second.finished).toMatchObject({ code: 0, stdout: "mine\n" });
});

it("never runs two commands at a time", async () => {
  // mkdir fails if the folder is there.
  const busy = join(folder.path, "busy");
  const script = `mkdir "${busy}" && sleep 0.03 && rmdir "${busy}"`;
  const results = await Promise.all(
    Array.from({ length: 6 }, () => exec(script, "--wait", "20s").finished),
  );
  expect(results.map(({ code, stderr }) => ({ code, stderr }))).toEqual(
    results.map(() => ({ code: 0, stderr: "" })),
  );
  await expectFree();
});

it("holds the lock for longer than its TTL", async () => {
  const running = exec("echo started; read line", "--ttl", "700ms");
  await running.printed("started");
  const begunMs = Date.now();
  // Past the end and the second for which a lock counts as held after it.
  await until(() => Date.now() > begunMs + 1_900);
  const { fence } = (await json(0, url, "status", "k")) as { fence: string };
  // That of the grant, before it began to run.
  expect(fence).toSatisfy(isFromTheClock);
  expect(Number(fence)).toBeLessThanOrEqual(begunMs);
  running.child.stdin.end("\n");
  expect((await running.finished).code).toBe(0);
});

describe("signals", () => {
  it("go to the command, whose end is waited for", async () => {
    const running = exec(
      'trap "echo told; exit 9" TERM; echo started; while :; do sleep 0.02; done',
    );
    await running.printed("started");
    running.child.kill("SIGTERM");
    expect(await running.finished).toMatchObject({ code: 9, stdout: "started\ntold\n" });
    await expectFree();
  });

  it("end the waiting", async () => {
    const first = exec("echo started; read line");
    await first.printed("started");
    const second = exec("echo ran", "--wait", "1m", "-v");
    let said = "";
    second.child.stderr.on("data", (text: string) => (said += text));
    await until(() => said.includes("waiting"));
    second.child.kill("SIGTERM");
    expect(await second.finished).toMatchObject({ code: 143, stdout: "" });
    first.child.stdin.end("\n");
    await first.finished;
    await expectFree();
  });

  it("reach the command once when they come from a terminal", async () => {
    const marks = join(folder.path, "marks");
    // Ends by itself, well after a second signal would have come.
    const command = `trap 'echo int >> ${marks}' INT; echo started; sleep 0.4; sleep 0.4; exit 5`;
    // In place of the shell that `script` starts, which would take the signal for its own end.
    const line = `exec '${process.execPath}' '${main}' exec k -- sh -c "${command}"`;
    const terminal = startProgram("script", ["-qec", line, "/dev/null"], { SYNCGUARD_URL: url });
    await terminal.printed("started");
    terminal.child.stdin.write("\u0003");
    expect((await terminal.finished).code).toBe(5);
    expect(readFileSync(marks, "utf8")).toBe("int\n");
    await expectFree();
  });
});

describe("a lock that is lost", () => {
  it("ends the command and what it has started, by force if need be", async () => {
    const running = exec(stubborn, "--ttl", "2s", "--kill-after", "200ms");
    await running.printed("\n");
    expect(await json(0, url, "force-release", "k", "--yes")).toEqual({ released: true });
    const { code, stdout, stderr } = await running.finished;
    expect(code).toBe(76);
    expect(stderr).toContain("ending the command");
    expect(stderr).toContain("ended with 137");
    const pids = stdout.trim().split(" ").map(Number);
    expect(pids).toHaveLength(2);
    await until(() => pids.every((pid) => !isRunning(pid)), 2_000);
  });

  it("ends the command after the TTL if it does not extend itself", async () => {
    const options = ["--ttl", "1s", "--no-auto-extend"];
    const { code, stderr } = await exec("sleep 20", ...options).finished;
    expect(code).toBe(76);
    expect(stderr).toContain("ended with 143");
  });

  it("ends the command and gives 76 although nobody reads what is said of it", async () => {
    const running = exec(stubborn, "--ttl", "2s", "--kill-after", "200ms");
    await running.printed("\n");
    running.child.stdout.destroy();
    running.child.stderr.destroy();
    await json(0, url, "force-release", "k", "--yes");
    const { code, stdout } = await running.finished;
    expect(code).toBe(76);
    const pids = stdout.trim().split(" ").map(Number);
    await until(() => pids.every((pid) => !isRunning(pid)), 2_000);
  });

  it("is one object of JSON with --json", async () => {
    const ended = exec("echo started; exec sleep 20", "--ttl", "2s", "--json");
    await ended.printed("started");
    await json(0, url, "force-release", "k", "--yes");
    const endedByUs = await ended.finished;
    const running = exec("echo started; read line", "--ttl", "1m", "--json");
    await running.printed("started");
    await json(0, url, "force-release", "k", "--yes");
    running.child.stdin.end("\n");
    const endedAlone = await running.finished;
    for (const { code, stderr } of [endedByUs, endedAlone]) {
      expect(code).toBe(76);
      expect(JSON.parse(stderr)).toMatchObject({ error: { code: "LockLost" } });
    }
  });

  it("is told even if the command has ended well meanwhile", async () => {
    const running = exec("echo started; read line", "--ttl", "1m");
    await running.printed("started");
    await json(0, url, "force-release", "k", "--yes");
    running.child.stdin.end("\n");
    const { code, stderr } = await running.finished;
    expect(code).toBe(76);
    expect(stderr).toContain("the lock was gone when the command ended with 0");
  });
});

describe("exec that is killed", () => {
  it("takes the command with it, and what that has started", async () => {
    // In a group of its own, which is killed as a whole: `timeout -k` and the runners of CI do that.
    const line = `exec '${process.execPath}' '${main}' exec k -v --kill-after 200ms -- sh -c '${stubborn}' 2>&1`;
    const running = startProgram("setsid", ["sh", "-c", line], { SYNCGUARD_URL: url });
    await running.printed("the command runs");
    await until(() => PIDS.test(running.stdout()));
    process.kill(-running.child.pid!, "SIGKILL");
    const { signal, stdout } = await running.finished;
    expect(signal).toBe("SIGKILL");
    const pids = PIDS.exec(stdout)!.slice(1).map(Number);
    await until(() => pids.every((pid) => !isRunning(pid)), 5_000);
  });

  it("takes the command with it on a terminal, too", async () => {
    const pids = join(folder.path, "pids");
    const command = `echo $PPID $$ > ${pids}; echo started; exec sleep 20`;
    const line = `'${process.execPath}' '${main}' exec k -v -- sh -c "${command.replaceAll("$", "\\$")}"`;
    const terminal = startProgram("script", ["-qec", line, "/dev/null"], { SYNCGUARD_URL: url });
    await terminal.printed("started");
    await terminal.printed("the command runs");
    const [parent, child] = readFileSync(pids, "utf8").trim().split(" ").map(Number);
    process.kill(parent!, "SIGKILL");
    await until(() => !isRunning(child!), 5_000);
    await terminal.finished;
  });

  it("frees the lock after the TTL", async () => {
    const running = exec("echo started; exec sleep 20", "--ttl", "1s");
    await running.printed("started");
    running.child.kill("SIGKILL");
    await running.finished;
    expect(await cli(url, "exec", "k", "--wait", "10s", "--", "true")).toMatchObject({ code: 0 });
  });
});

it("leaves alone what the command has left running", async () => {
  const done = join(folder.path, "done");
  const script = `(for i in 1 2 3 4 5 6 7 8; do sleep 0.05; done; echo > ${done}) >/dev/null 2>&1 &`;
  expect((await exec(script).finished).code).toBe(0);
  await until(() => existsSync(done), 5_000);
});
