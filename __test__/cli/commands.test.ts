/** The command line on the store that needs no server: what is printed, exit codes, and that nothing secret is shown. */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { createSqliteBackend } from "syncguard/sqlite";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { startProgram } from "../support/child";
import { cli, expectPlain, json, main, startCli } from "../support/cli";
import { temporaryFolder } from "../support/temp";

let folder: ReturnType<typeof temporaryFolder>;
let file: string;
let url: string;
let backend: ReturnType<typeof createSqliteBackend>;
beforeEach(() => {
  folder = temporaryFolder();
  file = join(folder.path, "locks.db");
  url = `sqlite:${file}`;
  backend = createSqliteBackend(file);
});
afterEach(async () => {
  await backend.close();
  folder.remove();
});

const COMMANDS = [
  "exec",
  "status",
  "list",
  "watch",
  "dashboard",
  "release",
  "force-release",
  "setup",
  "doctor",
];

describe("help", () => {
  it("has all commands, and each has its options, examples and exit codes", async () => {
    const all = await cli(url, "--help");
    expect(all.code).toBe(0);
    const helps = await Promise.all(COMMANDS.map((name) => cli(url, name, "--help")));
    for (const [at, { code, stdout, stderr }] of helps.entries()) {
      const name = COMMANDS[at] as string;
      expect(all.stdout).toContain(`\n  ${name} `);
      expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
      for (const part of [`Usage: syncguard ${name}`, "--url URL", "Examples:", "Exit codes:"]) {
        expect(stdout).toContain(part);
      }
      expectPlain(helps[at]!);
    }
  });

  it("says what is wrong with the arguments", async () => {
    const mistakes = [
      [[], "which command?"],
      [["stauts"], "did you mean status?"],
      [["--json", "status", "k"], "the command comes first"],
      [["status"], "status takes <key|lockId>, but got 0"],
      [["exec", "k", "echo", "hi"], "exec needs a command after --"],
      [["exec", "k", "ls", "-l"], "exec needs a command after --"],
      [["exec", "k", "--ttl", "30", "--", "true"], "--ttl must be a number and a unit"],
      [["list", "--limit", "none"], "--limit must be a whole number"],
      [["dashboard", "--port", "65536"], "--port must be a whole number"],
      [["status", "k", "--table-name", "t"], "--table-name is for PostgreSQL"],
      [["status", "k".repeat(600)], "exceeds maximum length"],
      [["release", "short"], "Invalid lockId"],
      [["force-release", "k"], "nothing was done without --yes"],
    ] as const;
    const results = await Promise.all(mistakes.map(([args]) => cli(url, ...args)));
    for (const [at, { code, stdout, stderr }] of results.entries()) {
      const message = mistakes[at]![1];
      expect({ code, stdout }, message).toEqual({ code: 64, stdout: "" });
      expect(stderr).toContain(message);
    }
  });
});

it("shows no password, whatever is wrong", async () => {
  const secret = "s3cr3t-word";
  const urls = [
    `redis://user:${secret}@127.0.0.1:1`,
    `redis://user:${secret}?x@127.0.0.1:1`,
    `redis://127.0.0.1:1/0?password=${secret}`,
    `postgres://u:${secret}@127.0.0.1:1/db`,
    `postgres://u:${secret}@h:notaport/db`,
    `http://u:${secret}@h`,
    `u:${secret}@h`,
  ];
  const options = ["--verbose", "--timeout", "500ms"];
  const results = await Promise.all(
    urls.map((wrong, at) =>
      at % 2 === 0 ? cli(wrong, "status", "k", ...options) : cli(wrong, "doctor", ...options),
    ),
  );
  for (const { code, stdout, stderr } of results) {
    expect([1, 64, 69]).toContain(code);
    expect(stdout + stderr).not.toContain(secret);
  }
  // In a place where no URL belongs.
  const { code, stderr } = await cli(url, urls[0]!, urls[1]!, `--${urls[2]}`);
  expect(code).toBe(64);
  expect(stderr).not.toContain(secret);
});

describe("status", () => {
  it("shows a lock by its key or lock id, and its own id only when asked", async () => {
    const held = await backend.lock("job:1", { ttlMs: 60_000, owner: "worker-7" });
    const lock = await json(0, url, "status", "job:1");
    expect(lock).toEqual({
      locked: true,
      key: "job:1",
      owner: "worker-7",
      fence: held.fence,
      acquiredAtMs: held.expiresAtMs - 60_000,
      expiresAtMs: held.expiresAtMs,
      expiresInMs: expect.any(Number) as number,
      keyHash: expect.stringMatching(/^[0-9a-f]{24}$/) as string,
      lockIdHash: expect.stringMatching(/^[0-9a-f]{24}$/) as string,
    });
    expect(await json(0, url, "status", held.lockId)).toMatchObject({ key: "job:1" });
    expect(await json(0, url, "status", "job:1", "--show-lock-id")).toMatchObject({
      lockId: held.lockId,
    });
    const people = await cli(url, "status", "job:1");
    expect(people).toMatchObject({ code: 0, stderr: "" });
    expect(people.stdout).toMatch(/^owner +worker-7$/m);
    expect(people.stdout).not.toContain(held.lockId);
    expectPlain(people);
    await backend.lock("job:2");
    const { stdout } = await cli(url, "status", "job:2");
    expect(stdout).toMatch(new RegExp(`^owner +.+:${process.pid}$`, "m"));
  });

  it("ends with 1 for a lock that nobody holds, also with an id", async () => {
    const held = await backend.lock("job:1");
    await held.release();
    for (const wanted of ["job:1", held.lockId]) {
      expect(await json(1, url, "status", wanted)).toEqual({ locked: false });
    }
    expect(await cli(url, "status", "job:1")).toMatchObject({ code: 1, stdout: "free\n" });
  });

  it("takes a key that looks like an option after --", async () => {
    await backend.lock("--json");
    expect((await cli(url, "status", "--", "--json")).code).toBe(0);
  });

  it("lets no key or owner change the terminal", async () => {
    await backend.lock("k", { owner: "\u001b[2J\u0007\u009b1m\u202eabc" });
    const status = await cli(url, "status", "k");
    expectPlain(status);
    expect(status.stdout).toContain("\\x1b[2J\\x07\\x9b1m\\u202eabc");
  });

  it("is coloured on a terminal, unless NO_COLOR asks for none", async () => {
    const line = `'${process.execPath}' '${main}' status k`;
    const env = { SYNCGUARD_URL: url, TERM: "xterm", NO_COLOR: undefined };
    const shown = await startProgram("script", ["-qec", line, "/dev/null"], env).finished;
    expect(shown.stdout).toContain("\u001b[32mfree");
    const plain = { ...env, NO_COLOR: "1" };
    expectPlain(await startProgram("script", ["-qec", line, "/dev/null"], plain).finished);
  });
});

describe("without a store", () => {
  it("does nothing, and names the three ways to give one", async () => {
    const ways = ["--url", "SYNCGUARD_URL", "--local"];
    for (const args of [["exec", "k", "--", "echo", "ran"], ["status", "k"], ["setup"], ["list"]]) {
      const { code, stdout, stderr } = await cli(undefined, ...args);
      expect({ code, stdout }).toEqual({ code: 64, stdout: "" });
      for (const way of ways) expect(stderr).toContain(way);
    }
    expect((await cli(undefined, "status", "k", "--local", "--url", url)).code).toBe(64);
  });

  it("uses the file of lock() if asked to, in whichever way", async () => {
    const env = { XDG_STATE_HOME: folder.path, NODE_ENV: undefined };
    const there = join(folder.path, "syncguard", "locks.db");
    const inner = [process.execPath, main, "status", "k"];
    for (const [SYNCGUARD_URL, option] of [
      [undefined, ["--local"]],
      [url, ["--local"]],
      ["local", []],
      [undefined, ["--url", "local"]],
    ] as const) {
      const args = [main, "exec", "k", "-v", ...option, "--", ...inner, ...option];
      const running = startProgram(process.execPath, args, { ...env, SYNCGUARD_URL });
      const { code, stderr } = await running.finished;
      expect(code).toBe(0);
      expect(stderr).toContain(there);
    }
  });
});

it("releases by lock id, from the arguments or from stdin", async () => {
  const first = await backend.lock("k");
  expect(await json(0, url, "release", first.lockId)).toEqual({ released: true });
  expect(await json(1, url, "release", first.lockId)).toEqual({ released: false });
  const second = await backend.lock("k");
  const reading = startCli(url, "release", "-");
  reading.child.stdin.end(`${second.lockId}\n`);
  expect(await reading.finished).toMatchObject({ code: 0, stdout: "released\n" });
});

it("force-releases only with --yes", async () => {
  const held = await backend.lock("k");
  expect((await cli(url, "force-release", "k")).code).toBe(64);
  expect(await backend.isLocked({ key: "k" })).toBe(true);
  expect(await json(0, url, "force-release", "k", "--yes")).toEqual({ released: true });
  expect(await json(1, url, "force-release", "k", "--yes")).toEqual({ released: false });
  expect(await held.release()).toEqual({ ok: false });
});

it("watches a lock come and go", async () => {
  const watching = startCli(url, "watch", "k", "--json", "--interval", "50ms");
  await watching.printed('"free"');
  const held = await backend.lock("k", { ttlMs: 60_000 });
  await watching.printed('"acquired"');
  await held.extend(90_000);
  await watching.printed('"extended"');
  await held.release();
  await watching.printed('"released"');
  const next = await backend.lock("k", { ttlMs: 100 });
  await watching.printed('"expired"');
  watching.child.kill("SIGINT");
  const { code, stdout, stderr } = await watching.finished;
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  const events = stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as { event: string; lock?: { fence: string } });
  expect(next.fence > held.fence).toBe(true);
  expect(events.map(({ event, lock }) => [event, lock?.fence])).toEqual([
    ["free", undefined],
    ["acquired", held.fence],
    ["extended", held.fence],
    ["released", held.fence],
    ["acquired", next.fence],
    ["expired", next.fence],
  ]);
});

it("hears of a release before it looks again", async () => {
  const held = await backend.lock("k");
  const watching = startCli(url, "watch", "k", "--interval", "1h");
  await watching.printed("held");
  await held.release();
  await watching.printed("released");
  watching.child.kill("SIGTERM");
  expect((await watching.finished).code).toBe(0);
});

it("is no error when whoever reads stops reading", async () => {
  await backend.lock("k");
  const watching = startCli(url, "watch", "k", "--interval", "10ms");
  await watching.printed("held");
  watching.child.stdout.destroy();
  await backend.forceRelease("k");
  const { code, stderr } = await watching.finished;
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
});

it("ends once nobody reads what it would print, long before there is anything to print", async () => {
  const line = `'${process.execPath}' '${main}' watch k --json --interval 1h | head -1`;
  const watching = startProgram("sh", ["-c", line], { SYNCGUARD_URL: url });
  const { code, stdout, stderr } = await watching.finished;
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(JSON.parse(stdout)).toMatchObject({ event: "free" });
});

it("fails if a result cannot be written, and not if nobody wants it", async () => {
  const into = async (redirection: string) => {
    const line = `'${process.execPath}' '${main}' list ${redirection}`;
    return await startProgram("sh", ["-c", line], { SYNCGUARD_URL: url }).finished;
  };
  expect(await into("> /dev/full")).toMatchObject({ code: 70 });
  expect(await into("--json 2>&1 | true")).toMatchObject({ code: 0, stderr: "" });
});

it("lists locks by page, and needs no set-up", async () => {
  for (let number = 0; number < 205; number += 1) await backend.lock(`job:${number}`);
  const gone = await backend.lock("job:released");
  await gone.release();
  type Page = { locks: { key: string; lockId?: string }[]; next: string | null };
  const all = (await json(0, url, "list", "--all")) as Page;
  expect(new Set(all.locks.map(({ key }) => key)).size).toBe(205);
  expect(all.next).toBeNull();
  expect(all.locks[0]?.lockId).toBeUndefined();
  const first = (await json(0, url, "list", "--limit", "150")) as Page;
  expect(first.locks).toEqual(
    all.locks.slice(0, 150).map((lock) => ({ ...lock, expiresInMs: expect.any(Number) as number })),
  );
  const rest = (await json(0, url, "list", "--after", first.next!)) as Page;
  expect(rest.locks.map(({ key }) => key)).toEqual(all.locks.slice(150).map(({ key }) => key));
  const people = await cli(url, "list", "--limit", "2");
  expect(people.stdout.trim().split("\n")).toHaveLength(3);
  expect(people.stderr).toContain("there may be more");
  expectPlain(people);
  expect(await json(0, url, "setup")).toEqual({ store: "sqlite", ready: true });
});

describe("doctor", () => {
  it("finds a good file good, and leaves nothing locked", async () => {
    const found = (await json(0, url, "doctor")) as { checks: { name: string; status: string }[] };
    expect(found).toMatchObject({ ok: true, store: "sqlite" });
    expect(found.checks.map(({ name, status }) => `${name} ${status}`)).toEqual([
      "connection ok",
      "version ok",
      "file ok",
      "integrity ok",
      "size ok",
      "operations ok",
      "round trip ok",
    ]);
    expect(await json(0, url, "list")).toEqual({ locks: [], next: null });
  });

  it("says what is wrong with a file that is no database", async () => {
    const wrong = join(folder.path, "wrong.db");
    writeFileSync(wrong, "x".repeat(5000));
    const { code, stdout } = await cli(`sqlite:${wrong}`, "doctor");
    expect(code).toBe(1);
    expect(stdout).toMatch(/^fail +connection/m);
    expect(stdout).toContain("fix: ");
  });
});
