/** The command line with what is to be done once. */

import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createSqliteBackend } from "syncguard/sqlite";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { cli, expectPlain, json, startCli } from "../support/cli";
import { temporaryFolder } from "../support/temp";
import { until } from "../support/until";

const KEY = "job:nightly";

let folder: ReturnType<typeof temporaryFolder>;
let url: string;
let backend: ReturnType<typeof createSqliteBackend>;
beforeEach(() => {
  folder = temporaryFolder();
  const file = join(folder.path, "locks.db");
  url = `sqlite:${file}`;
  backend = createSqliteBackend(file);
});
afterEach(async () => {
  await backend.close();
  folder.remove();
});

const exec = async (due: string, ...rest: string[]) =>
  await cli(url, "exec", KEY, "--once", due, "--", ...rest);

describe("exec --once", () => {
  it("runs a command once for each period, and ends with 0 when that was done before", async () => {
    const first = await exec("2026-11-24", "echo", "ran");
    expect(first).toMatchObject({ code: 0, stdout: "ran\n", stderr: "" });
    const again = await exec("2026-11-24", "echo", "ran");
    expect(again).toMatchObject({ code: 0, stdout: "", stderr: "" });
    const told = await cli(url, "exec", KEY, "--once", "2026-11-24", "-v", "--", "echo", "ran");
    expect(told.stderr).toContain("nothing to do: done for 2026-11-24, at 2");
    expect(await exec("2026-11-25", "echo", "ran")).toMatchObject({ code: 0, stdout: "ran\n" });
  });

  it("ends with 65 when a later period is done, and says how to set that back", async () => {
    const far = ["--once", "2999-11-27", "--", "echo", "ran"];
    const refused = await cli(url, "exec", KEY, ...far);
    expect(refused).toMatchObject({ code: 64, stdout: "" });
    expect(refused.stderr).toContain("--once begins more than a day after");
    expect(refused.stderr).toContain("allow it with --allow-ahead");
    expect(await cli(url, "exec", KEY, "--allow-ahead", ...far)).toMatchObject({ code: 0 });
    const ahead = await exec("2026-11-24", "echo", "ran");
    expect(ahead).toMatchObject({ code: 65, stdout: "" });
    expect(ahead.stderr).toContain("a later period than --once is done, 2999-11-27");
    expect(ahead.stderr).toContain("syncguard mark KEY --set DUE --yes");
    expectPlain(ahead);
    await cli(url, "mark", KEY, "--set", "2026-11-23", "--yes");
    expect(await exec("2026-11-24", "echo", "ran")).toMatchObject({ code: 0, stdout: "ran\n" });
  });

  it("leaves the period open when the command fails, or cannot be run", async () => {
    expect(await exec("1", "sh", "-c", "exit 3")).toMatchObject({ code: 3, stdout: "" });
    expect(await exec("1", "no-such-command-here")).toMatchObject({ code: 127 });
    expect(await exec("1", "sh", "-c", "kill -9 $$")).toMatchObject({ code: 128 + 9 });
    expect(await exec("1", "echo", "ran")).toMatchObject({ code: 0, stdout: "ran\n" });
  });

  it("ends with 75 while somebody else is on it", async () => {
    const begun = join(folder.path, "begun");
    const end = join(folder.path, "end");
    const script = `touch "${begun}"; while ! test -e "${end}"; do sleep 0.05; done`;
    const running = startCli(url, "exec", KEY, "--once", "1", "--", "sh", "-c", script);
    await until(() => existsSync(begun));
    const refused = await exec("1", "echo", "ran");
    expect(refused).toMatchObject({ code: 75, stdout: "" });
    expectPlain(refused);
    writeFileSync(end, "");
    expect(await running.finished).toMatchObject({ code: 0 });
    expect(await exec("1", "echo", "ran")).toMatchObject({ code: 0, stdout: "" });
  });

  it("says that the lock was lost, and stores nothing then", async () => {
    const script = `touch "${join(folder.path, "begun")}"; sleep 0.3`;
    const args = ["exec", KEY, "--once", "1", "--no-auto-extend", "--", "sh", "-c", script];
    const running = startCli(url, ...args);
    await until(() => existsSync(join(folder.path, "begun")));
    await backend.forceRelease(KEY);
    expect(await running.finished).toMatchObject({ code: 76 });
    expect(await exec("1", "echo", "ran")).toMatchObject({ code: 0, stdout: "ran\n" });
  });

  it("takes what once() takes, and nothing beside it", async () => {
    for (const args of [
      ["--once", ""],
      ["--once", "tomorow"],
      ["--allow-ahead"],
      ["--once", "é"],
      ["--once", "1", "--slots", "2"],
      ["--once", "1", "--wait", "1s"],
      ["--once", "1", "--min-hold", "1s"],
      ["--once", "1", "another:key"],
    ]) {
      const refused = await cli(url, "exec", KEY, ...args, "--", "echo", "ran");
      expect(refused).toMatchObject({ code: 64, stdout: "" });
      expect(refused.stderr).toContain("--once");
    }
    await backend.once(KEY, { due: "v1" }, () => undefined);
    expect(await exec("2", "echo", "ran")).toMatchObject({ code: 64, stdout: "" });
  });
});

describe("mark and status", () => {
  it("show what is stored as done", async () => {
    expect(await cli(url, "mark", KEY)).toMatchObject({ code: 1, stdout: "nothing is done\n" });
    expect(await json(1, url, "mark", KEY)).toEqual({ done: null });
    await backend.once(KEY, { due: 42 }, () => undefined);
    const { code, stdout } = await cli(url, "mark", KEY);
    expect({ code, stdout }).toMatchObject({ code: 0 });
    expect(stdout).toMatch(/^42, at 2\d{3}-/);
    const done = { due: "42", doneAtMs: expect.any(Number) as number };
    expect(await json(0, url, "mark", KEY)).toEqual({ done });
    const free = await cli(url, "status", KEY);
    expect(free).toMatchObject({ code: 1 });
    expect(free.stdout).toMatch(/^free; done for 42, at 2/);
    expect(await json(1, url, "status", KEY)).toEqual({ locked: false, done });
    await backend.acquire({ key: KEY, ttlMs: 30_000 });
    expect((await cli(url, "status", KEY)).stdout).toMatch(/^done for +42, at 2/m);
    expect(await json(0, url, "status", KEY)).toMatchObject({ locked: true, done });
  });

  it("is not changed between numbers and texts without --force", async () => {
    for (const [due, other, is, becomes] of [
      [42, "v1", "a number", "text"],
      ["v1", "42", "text", "a number"],
    ] as const) {
      const key = `${KEY}:${due}`;
      await backend.once(key, { due }, () => undefined);
      const set = ["mark", key, "--set", other, "--yes"] as const;
      const refused = await cli(url, ...set);
      expect(refused).toMatchObject({ code: 64, stdout: "" });
      expect(refused.stderr).toContain(
        `what is stored as done for this key is ${is}, and --set is ${becomes}`,
      );
      expect(refused.stderr).toContain("--force");
      // Nothing was stored: the period of before is still done.
      expect(await backend.once(key, { due }, () => 1)).toMatchObject({ reason: "done" });
      expect(await cli(url, ...set, "--force")).toMatchObject({ code: 0 });
      expect(await backend.once(key, { due: other }, () => 1)).toMatchObject({ reason: "done" });
    }
  });

  it("is changed only by those who say yes", async () => {
    await backend.once(KEY, { due: 42 }, () => undefined);
    for (const args of [
      ["--set", "41"],
      ["--clear"],
      ["--set", "41", "--clear", "--yes"],
      ["--set", "", "--yes"],
    ]) {
      expect(await cli(url, "mark", KEY, ...args)).toMatchObject({ code: 64, stdout: "" });
    }
    expect(await backend.once(KEY, { due: 42 }, () => 1)).toMatchObject({ reason: "done" });
    const set = await cli(url, "mark", KEY, "--set", "41", "--yes");
    expect(set).toMatchObject({ code: 0 });
    expect(set.stdout).toMatch(/^41, at 2/);
    expect(await backend.once(KEY, { due: 42 }, () => 1)).toMatchObject({ ran: true });
    // A change that is made is no failure, whatever was before.
    const first = await cli(url, "mark", `${KEY}:new`, "--set", "5", "--yes");
    expect(first).toMatchObject({ code: 0 });
    expect(first.stdout).toMatch(/^5, at 2/);
    expect(await cli(url, "mark", `${KEY}:none`, "--clear", "--yes")).toMatchObject({ code: 0 });
    const cleared = await cli(url, "mark", KEY, "--clear", "--yes");
    expect(cleared).toMatchObject({ code: 0, stdout: "nothing is done\n" });
    expect(await backend.once(KEY, { due: "v1" }, () => 1)).toMatchObject({ ran: true });
  });
});
