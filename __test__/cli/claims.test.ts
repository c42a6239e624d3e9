/** The command line with several keys, with slots, and with --min-hold. */

import { join } from "node:path";
import { hashKey } from "syncguard";
import { createSqliteBackend } from "syncguard/sqlite";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { slotsInUse } from "../../dist/inspection/listing.js";
import { parted } from "../../dist/values/slots.js";
import { cli, expectPlain, json, startCli } from "../support/cli";
import { temporaryFolder } from "../support/temp";
import { until } from "../support/until";

type Lock = Record<"key" | "owner" | "fence" | "lockId", string> & {
  slot?: number;
  gate?: true;
  expiresInMs: number;
};

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

/** What the command of `exec` is told. */
const TELL = ["--", "sh", "-c", "env | grep -E '^SYNCGUARD_(KEY|FENCE|SLOT)' | sort"];

/** Those variables, with the digits of fences left out. */
const told = (stdout: string): string[] =>
  stdout
    .replace(/\d{15}/g, "FENCE")
    .trim()
    .split("\n");

describe("exec", () => {
  it("takes several keys, and tells of each in the order of the arguments", async () => {
    const { code, stdout, stderr } = await cli(url, "exec", "b", "a", ...TELL);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(told(stdout)).toEqual([
      "SYNCGUARD_FENCE_1=FENCE",
      "SYNCGUARD_FENCE_2=FENCE",
      "SYNCGUARD_KEY_1=b",
      "SYNCGUARD_KEY_2=a",
    ]);
    expect(await json(0, url, "list")).toEqual({ locks: [], next: null });
  });

  it("shares a key with --shared, and with nobody who has it alone", async () => {
    const reader = await backend.lock("a", { mode: "shared" });
    const { code, stdout } = await cli(url, "exec", "a", "b", "--shared", "--", "echo", "ran");
    expect({ code, stdout }).toEqual({ code: 0, stdout: "ran\n" });
    const shown = { key: "a", mode: "shared", fence: reader.fence };
    expect(await json(0, url, "status", "a")).toMatchObject({ locked: true, ...shown });
    const lockIdHash = hashKey(reader.lockId);
    const listed = await json(0, url, "list");
    expect(listed).toMatchObject({ locks: [{ ...shown, lockIdHash }] });
    expect((listed as { locks: object[] }).locks).toHaveLength(1);
    expect((await cli(url, "list")).stdout).toContain("a, shared");
    expect((await cli(url, "exec", "a", "--", "echo", "ran")).code).toBe(75);
    await reader.release();
    const writer = await backend.lock("a");
    expect((await cli(url, "exec", "a", "--shared", "--", "echo", "ran")).code).toBe(75);
    await writer.release();
    expect((await cli(url, "exec", "a", "--shared", "--slots", "2", "--", "true")).code).toBe(64);
  });

  it("takes all or none of them", async () => {
    const held = await backend.lock("b");
    const { code, stdout, stderr } = await cli(url, "exec", "a", "b", "--", "echo", "ran");
    expect({ code, stdout }).toEqual({ code: 75, stdout: "" });
    expect(stderr).toContain("somebody else holds one of the locks: the command was not run");
    expect(await backend.isLocked({ key: "a" })).toBe(false);
    const waiting = startCli(url, "exec", "a", "b", "--wait", "20s", "-v", "--", "echo", "ran");
    await held.release();
    expect(await waiting.finished).toMatchObject({ code: 0, stdout: "ran\n" });
  });

  it("ends the command when one of them is lost", async () => {
    const running = startCli(
      url,
      ...["exec", "a", "b", "--ttl", "2s", "--", "sh", "-c", "echo started; exec sleep 20"],
    );
    await running.printed("started");
    await json(0, url, "force-release", "b", "--yes");
    // The other one is not left to its TTL.
    expect((await running.finished).code).toBe(76);
    expect(await backend.isLocked({ key: "a" })).toBe(false);
  });

  it("takes one of the slots, or is told that all are in use", async () => {
    const running = ["first", "second"].map(() =>
      startCli(
        url,
        "exec",
        "api",
        "--slots",
        "2",
        "--",
        "sh",
        "-c",
        "echo $SYNCGUARD_SLOT; read x",
      ),
    );
    await Promise.all(running.map((one) => one.printed("\n")));
    const { code, stdout, stderr } = await cli(url, "exec", "api", "--slots", "2", ...TELL);
    expect({ code, stdout }).toEqual({ code: 75, stdout: "" });
    expect(stderr).toContain("all slots are in use: the command was not run");
    const two = await cli(url, "exec", "api", "--slots", "3", "--take", "2", ...TELL);
    expect(two.code).toBe(75);
    expect(two.stderr).toContain("too few slots are free");
    for (const one of running) one.child.stdin.end("\n");
    const numbers = (await Promise.all(running.map((one) => one.finished))).map(
      (one) => one.stdout,
    );
    expect(numbers.sort()).toEqual(["1\n", "2\n"]);
  });

  it("tells of each slot that it takes", async () => {
    const one = await cli(url, "exec", "api", "--slots", "1", ...TELL);
    expect(told(one.stdout)).toEqual([
      ...["SYNCGUARD_FENCE=FENCE", "SYNCGUARD_KEY=api", "SYNCGUARD_SLOT=1"],
    ]);
    const two = await cli(url, "exec", "api", "--slots", "2", "--take", "2", ...TELL);
    expect(told(two.stdout)).toEqual([
      ...["SYNCGUARD_FENCE_1=FENCE", "SYNCGUARD_FENCE_2=FENCE"],
      ...["SYNCGUARD_KEY_1=api", "SYNCGUARD_KEY_2=api"],
      ...[expect.stringMatching(/^SYNCGUARD_SLOT_1=[12]$/) as string],
      ...[expect.stringMatching(/^SYNCGUARD_SLOT_2=[12]$/) as string],
    ]);
  });

  it("hands nothing of an exec around it to the command", async () => {
    const { dirname } = import.meta;
    const main = join(dirname, "../../dist/cli/main.js");
    const inner = [process.execPath, main, "exec", "a", "b", ...TELL];
    const { code, stdout } = await cli(url, "exec", "outer", "--slots", "2", "--", ...inner);
    expect(code).toBe(0);
    expect(told(stdout).map((line) => line.replace(/=.*/, ""))).toEqual([
      ...["SYNCGUARD_FENCE_1", "SYNCGUARD_FENCE_2", "SYNCGUARD_KEY_1", "SYNCGUARD_KEY_2"],
    ]);
  });

  it("keeps the lock for --min-hold, unless the command could not be started", async () => {
    const hold = ["--ttl", "1m", "--min-hold", "30s"];
    expect((await cli(url, "exec", "k", ...hold, "--", "true")).code).toBe(0);
    const { expiresInMs } = (await json(0, url, "status", "k")) as Lock;
    expect(expiresInMs).toBeGreaterThan(0);
    expect(expiresInMs).toBeLessThan(30_000);
    expect((await cli(url, "exec", "k", "--", "true")).code).toBe(75);
    expect((await cli(url, "exec", "other", ...hold, "--", "/no/such/program")).code).toBe(127);
    expect(await backend.isLocked({ key: "other" })).toBe(false);
  });

  it("says what is wrong with the arguments", async () => {
    const mistakes = [
      [["a", "b", "--slots", "2"], "--slots is for one key"],
      [["a", "--take", "2"], "--take needs --slots"],
      [["a", "--slots", "2", "--take", "3"], "--take must not be larger than --slots"],
      [["a", "--slots", "0"], "--slots must be a whole number from 1 to 1000"],
      [["a", "--slots", "many"], "--slots must be a whole number from 1 to 1000"],
      [["a", "--min-hold", "31s"], "--min-hold must not be longer than --ttl"],
      [["a", "--min-hold", "5"], "--min-hold must be a number and a unit"],
      [[], "exec takes <key>…, but got 0"],
    ] as const;
    const results = await Promise.all(
      mistakes.map(([args]) => cli(url, "exec", ...args, "--", "echo", "ran")),
    );
    for (const [at, { code, stdout, stderr }] of results.entries()) {
      expect({ code, stdout }, mistakes[at]![1]).toEqual({ code: 64, stdout: "" });
      expect(stderr).toContain(mistakes[at]![1]);
    }
  });
});

it("watches all who share a key come and go as one", async () => {
  const watching = startCli(url, "watch", "a", "--json", "--interval", "50ms");
  await watching.printed('"free"');
  const first = await backend.lock("a", { mode: "shared", ttlMs: 60_000 });
  await watching.printed('"acquired"');
  const second = await backend.lock("a", { mode: "shared", ttlMs: 90_000 });
  await watching.printed('"extended"');
  await first.release();
  await second.release();
  await watching.printed('"released"');
  watching.child.kill("SIGINT");
  const lines = (await watching.finished).stdout.trim().split("\n");
  const events = lines.map((line) => JSON.parse(line) as { event: string; lock?: object });
  const { fence } = second;
  expect(events).toMatchObject([
    { event: "free" },
    ...["acquired", "extended", "released"].map((event) => ({
      event,
      lock: { key: "a", mode: "shared", fence },
    })),
  ]);
});

it("shows a writer who waits for readers by the gate that it holds, and not as a slot", async () => {
  const [key, ttlMs] = ["catalogue", 600_000];
  const reader = await backend.lock(key, { mode: "shared", ttlMs });
  const slot = await backend.lock({ key, slots: 3 }, { ttlMs });
  const acquisition = { timeoutMs: 300_000, maxRetries: Infinity };
  const writing = backend.lock(key, { owner: "writer", acquisition });
  const listed = async (): Promise<Lock[]> => {
    const found = await json(0, url, "list", "--show-lock-id");
    return (found as { locks: Lock[] }).locks;
  };
  await until(async () => {
    const gate = (await listed()).find((lock) => lock.gate);
    if (gate === undefined) return false;
    expect(gate).toMatchObject({ key, owner: "writer" });
    expect(gate).not.toHaveProperty("slot");
    const used = await slotsInUse(backend, key);
    expect(used.map((lock) => parted(lock.key).slot)).toEqual([slot.slot]);
    const { stdout } = await cli(url, "list");
    const status = await cli(url, "status", gate.lockId);
    // The writer has held it all the time.
    return stdout.includes("catalogue, gate ") && status.stdout.includes("catalogue, gate\n");
  });
  expect(await json(0, url, "status", key)).toMatchObject({ key, mode: "shared" });
  await reader.release();
  await (await writing).release();
  await until(async () => (await listed()).every((lock) => lock.gate === undefined));
  expect(await json(0, url, "status", key)).toMatchObject({ slots: [{ key, slot: slot.slot }] });
  await slot.release();
});

describe("slots", () => {
  it("are shown by status, with their numbers and owners", async () => {
    const claim = { key: "api:partner", slots: 5 } as const;
    const held = [
      await backend.lock(claim, { ttlMs: 60_000, owner: "one" }),
      await backend.lock(claim, { ttlMs: 60_000, owner: "two" }),
    ].sort((one, other) => one.slot - other.slot);
    await backend.lock({ key: "api:partner:other", slots: 5 });
    const found = await json(0, url, "status", "api:partner");
    expect(found).toMatchObject({
      ...{ locked: true, key: "api:partner", keyHash: hashKey("api:partner") },
      slots: held.map(({ slot, fence }) => ({ key: "api:partner", slot, fence })),
    });
    const people = await cli(url, "status", "api:partner");
    expectPlain(people);
    for (const { slot } of held) expect(people.stdout).toContain(`api:partner, slot ${slot} `);
    expect(people.stdout).not.toContain("other");
    const [one] = held;
    expect(await json(0, url, "status", one!.lockId)).toMatchObject({
      ...{ key: "api:partner", slot: one!.slot },
    });
    expect((await cli(url, "status", one!.lockId)).stdout).toContain(
      `api:partner, slot ${one!.slot}\n`,
    );
    await Promise.all(held.map((each) => each.release()));
    expect(await json(1, url, "status", "api:partner")).toEqual({ locked: false });
  });

  it("stand together in a list", async () => {
    await backend.lock("api");
    await backend.lock({ key: "api", slots: 12, take: 12 });
    await backend.lock("api:1");
    const { locks } = (await json(0, url, "list")) as { locks: Lock[] };
    expect(locks.map(({ key, slot }) => `${key} ${slot ?? "-"}`)).toEqual(
      expect.arrayContaining(["api -", "api:1 -"]),
    );
    const slots = locks.flatMap(({ slot }) => slot ?? []);
    expect(slots).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    const first = locks.findIndex(({ slot }) => slot === 1);
    expect(locks.slice(first, first + 12).every(({ slot }) => slot !== undefined)).toBe(true);
    const { stdout } = await cli(url, "list");
    expect(stdout).toContain("api, slot 12 ");
  });

  it("are released by force one by one", async () => {
    const held = await backend.lock({ key: "api", slots: 3, take: 3 });
    expect((await cli(url, "force-release", "api", "--slot", "2")).code).toBe(64);
    expect(await json(0, url, "force-release", "api", "--slot", "2", "--yes")).toEqual({
      released: true,
    });
    expect(await json(1, url, "force-release", "api", "--slot", "2", "--yes")).toEqual({
      released: false,
    });
    // The lock on the key is another one.
    expect(await json(1, url, "force-release", "api", "--yes")).toEqual({ released: false });
    const left = (await json(0, url, "status", "api")) as { slots: Lock[] };
    expect(left.slots.map(({ slot }) => slot)).toEqual([1, 3]);
    expect(await held.release()).toEqual({ ok: false });
    await until(async () => (await cli(url, "status", "api")).code === 1);
  });
});
