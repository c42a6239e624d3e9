/** The parts of the command line that judge and format, without processes. */

import { describe, expect, it, vi } from "vitest";
import { changes } from "../../dist/cli/changes.js";
import { type Command, readArguments } from "../../dist/cli/command.js";
import { judgeClock } from "../../dist/cli/doctor/clock.js";
import { judgePostgres } from "../../dist/cli/doctor/postgres.js";
import { judgeRedis } from "../../dist/cli/doctor/redis.js";
import { judgeSqlite } from "../../dist/cli/doctor/sqlite.js";
import { formatDuration, readDuration } from "../../dist/cli/duration.js";
import { keyOf } from "../../dist/cli/locks.js";
import { type ShownLock, shownLock } from "../../dist/inspection/locks.js";
import { Output } from "../../dist/cli/output.js";
import { withoutSecrets } from "../../dist/cli/store.js";

describe("arguments", () => {
  const command: Command = {
    name: "exec",
    summary: "",
    operands: ["<key>…"],
    rest: "command",
    description: "",
    options: { ttl: { type: "string", help: "" } },
    examples: [],
    exits: [],
    run: async () => Promise.resolve(0),
  };
  const read = (...args: string[]) => readArguments(command, args);

  it("are options, operands, and a command that is not read", () => {
    expect(read("-v", "k", "--ttl", "5s", "--url=x", "--", "c", "--ttl", "--")).toMatchObject({
      values: { ttl: "5s", url: "x", verbose: true },
      operands: ["k"],
      rest: ["c", "--ttl", "--"],
    });
    expect(read("--help").values.help).toBe(true);
  });

  it("may be lock ids that begin like options", () => {
    for (const lockId of ["-LJ0_x9kTqB3vW7yZ2mN5p", "--J0_x9kTqB3vW7yZ2mN5p"]) {
      expect(read("-v", lockId, "--ttl", "5s", "--", "c")).toMatchObject({
        values: { ttl: "5s", verbose: true },
        operands: [lockId],
        rest: ["c"],
      });
    }
  });

  it("are refused with the name of what is wrong, and nothing else of them", () => {
    for (const [args, message] of [
      [["k"], "needs a command after --"],
      [["--", "c"], "exec takes <key>…, but got 0"],
      [["k", "--urll", "s3cret", "--", "c"], "--urll is not an option"],
      [["k", "--redis://u:s3cret@h", "--", "c"], "an option that is given is not an option"],
      [["k", "--ttl", "--", "c"], "--ttl needs a value"],
      [["k", "--ttl", "-s3cret", "--", "c"], "--ttl needs a value"],
      [["k", "--json=s3cret", "--", "c"], "--json takes no value"],
    ] as const) {
      expect(() => read(...args), message).toThrow(message);
      expect(() => read(...args)).not.toThrow("s3cret");
    }
  });
});

describe("durations", () => {
  it("have a unit", () => {
    for (const [text, ms] of [
      ["1500ms", 1500],
      ["30s", 30_000],
      ["1.5h", 5_400_000],
      ["2d", 172_800_000],
      ["0", 0],
    ] as const) {
      expect(readDuration(text, "x")).toBe(ms);
    }
    for (const text of ["30", "", "s", "-1s", "1 s", "1e3s", "400d", "1s2", "Infinitys"]) {
      expect(() => readDuration(text, "x"), text).toThrow("--x");
    }
  });

  it("are shown by their two largest units", () => {
    for (const [ms, text] of [
      [0.42, "0.4 ms"],
      [420, "420 ms"],
      [12_340, "12.3 s"],
      [61_000, "1 m 1 s"],
      [90_000_000, "1 d 1 h"],
      [-500, "-500 ms"],
    ] as const) {
      expect(formatDuration(ms)).toBe(text);
    }
  });
});

it("shows of a URL only what is no secret", () => {
  for (const [url, shown] of [
    ["redis://host:6379/0", "redis://host:6379/0"],
    ["redis://u:p@host:6379/0?x=y", "redis://host:6379/0"],
    ["redis://u:p?a@b/c@host", "redis://host"],
    ["postgres://u:p@h1:1,h2:2/db?password=p", "postgres://h1:1,h2:2/db"],
    ["postgres:///db?user=u&password=p#p", "postgres:///db"],
    ["sqlite:/var/lib/app/locks.db", "sqlite:/var/lib/app/locks.db"],
  ] as const) {
    expect(withoutSecrets(url)).toBe(shown);
  }
});

it("shows a slot by its number, and the gate of a key as no slot", () => {
  const shown = (mark: string): [ShownLock, string] => {
    const times = { acquiredAtMs: 1, expiresAtMs: 3, readAtMs: 2 };
    const lock = shownLock({ key: `k${mark}`, lockId: "id", fence: "1", ...times }, false);
    return [lock, keyOf(lock)];
  };
  const [key, ofKey] = shown("");
  expect(key).not.toHaveProperty("slot");
  expect(key).not.toHaveProperty("gate");
  expect(ofKey).toBe("k");
  const [slot, ofSlot] = shown("\u037e3");
  expect(slot).toMatchObject({ key: "k", slot: 3 });
  expect(slot).not.toHaveProperty("gate");
  expect(ofSlot).toBe("k, slot 3");
  const [gate, ofGate] = shown("\u037e0");
  expect(gate).toMatchObject({ key: "k", gate: true });
  expect(gate).not.toHaveProperty("slot");
  expect(ofGate).toBe("k, gate");
});

describe("changes of a lock", () => {
  const lock = (id: string, acquiredAtMs: number, expiresAtMs: number): ShownLock => ({
    key: "k",
    owner: null,
    fence: "1",
    acquiredAtMs,
    expiresAtMs,
    expiresInMs: 0,
    keyHash: "",
    lockIdHash: id,
  });
  const events = (...args: Parameters<typeof changes>) =>
    changes(...args).map(({ event }) => event);

  it("are what happened between two looks", () => {
    const now = Date.now();
    const first = lock("a", now, now + 60_000);
    expect(events(undefined, undefined, true)).toEqual(["free"]);
    expect(events(undefined, first, true)).toEqual(["held"]);
    expect(events(undefined, undefined, false)).toEqual([]);
    expect(events(undefined, first, false)).toEqual(["acquired"]);
    expect(events(first, first, false)).toEqual([]);
    expect(events(first, lock("a", now, now + 90_000), false)).toEqual(["extended"]);
    expect(events(first, undefined, false)).toEqual(["released"]);
    expect(events(lock("a", 0, now - 2_000), undefined, false)).toEqual(["expired"]);
    expect(events(first, lock("b", now + 1, now + 2), false)).toEqual(["released", "acquired"]);
    expect(events(first, lock("b", now + 61_001, 1), false)).toEqual(["expired", "acquired"]);
    const otherReaders = { ...lock("a", now + 1, now + 2), fence: "2" };
    expect(events(first, otherReaders, false)).toEqual(["released", "acquired"]);
  });
});

/** What is not right, in short. */
const wrong = (checks: readonly { name: string; status: string; fix?: string }[]): string[] => {
  for (const { status, fix } of checks) expect(fix === undefined).toBe(status === "ok");
  return checks
    .filter(({ status }) => status !== "ok")
    .map(({ name, status }) => `${name} ${status}`);
};

describe("the doctor", () => {
  it("judges Redis", () => {
    const good = {
      version: "7.2.4",
      mode: "standalone",
      role: "master",
      loading: 0,
      maxmemory: 0,
      maxmemoryPolicy: "noeviction",
      usedMemory: 1,
      evictedKeys: 0,
      aofEnabled: 1,
      aofLastWriteStatus: "ok",
      rdbLastSaveStatus: "ok",
      replicas: 0,
    };
    for (const [change, found] of [
      [{}, []],
      [{ version: undefined }, ["settings warn"]],
      [{ version: "6.0.16" }, ["version fail"]],
      [{ version: "6.2.0" }, []],
      [{ version: "10.0.0" }, []],
      [{ role: "slave" }, ["writable fail"]],
      [{ loading: 1 }, ["writable fail"]],
      [{ maxmemoryPolicy: "volatile-lru" }, ["eviction warn"]],
      [{ maxmemoryPolicy: "volatile-lru", maxmemory: 100 }, ["eviction fail"]],
      [{ maxmemory: 100, usedMemory: 95 }, ["memory warn"]],
      [{ aofEnabled: 0 }, ["persistence warn"]],
      [{ rdbLastSaveStatus: "err" }, ["persistence fail"]],
      [{ replicas: 1 }, ["replication warn"]],
      [{ replicas: 1, goodReplicas: 1 }, []],
    ] as const) {
      expect(wrong(judgeRedis({ ...good, ...change })), JSON.stringify(change)).toEqual(found);
    }
  });

  it("judges PostgreSQL", () => {
    const good = {
      version: "15.8",
      versionNumber: 150_008,
      isStandby: false,
      readOnly: false,
      fsync: true,
      fullPageWrites: true,
      synchronousStandbys: "",
      maxConnections: 100,
      connections: 5,
      ownSession: true,
      locksTable: true,
      fencesTable: true,
      ownerColumn: true,
      doneColumns: true,
      lockIdIndex: true,
      expiresIndex: true,
      readersIndex: true,
      mayNotify: true,
    };
    for (const [change, found] of [
      [{}, []],
      [{ versionNumber: 120_000 }, ["version warn"]],
      [{ versionNumber: 110_022 }, ["version fail"]],
      [{ isStandby: true, readOnly: true }, ["writable fail"]],
      [{ readOnly: true }, ["writable fail"]],
      [{ fsync: false }, ["durability fail"]],
      [{ fullPageWrites: false }, ["durability warn"]],
      [{ synchronousStandbys: "*", standbys: 0, confirmingStandbys: 0 }, ["durability fail"]],
      [{ synchronousStandbys: "*", standbys: 0 }, ["durability fail"]],
      [{ synchronousStandbys: "b", standbys: 1, confirmingStandbys: 0 }, ["durability fail"]],
      [{ synchronousStandbys: "b", standbys: 1, confirmingStandbys: 1 }, []],
      [{ synchronousStandbys: "b", standbys: 1 }, ["durability warn"]],
      [{ synchronousStandbys: "ANY 2 (a,b)", confirmingStandbys: 1 }, ["durability fail"]],
      [{ synchronousStandbys: "2 (a, b)", confirmingStandbys: 2 }, []],
      [
        { synchronousStandbys: "b", synchronousCommit: "local", confirmingStandbys: 1 },
        ["durability warn"],
      ],
      [{ connections: 95 }, ["connections warn"]],
      [{ ownSession: false }, ["pooler warn"]],
      [{ locksTable: false }, ["schema fail"]],
      [{ fencesColumnsMissing: "fence" }, ["schema fail"]],
      [{ ownerColumn: false }, ["labels warn"]],
      [{ doneColumns: false }, ["once warn"]],
      [{ lockIdIndex: false }, ["indexes fail"]],
      [{ readersIndex: false }, ["shared locks warn"]],
      [{ locksRightsMissing: "DELETE" }, ["rights fail"]],
      [{ rowSecurity: "locks", rowPolicies: "locks" }, ["rights fail"]],
      [{ rowPolicies: "locks" }, ["rights warn"]],
      [{ mayNotify: false }, ["wake-ups warn"]],
    ] as const) {
      const checks = judgePostgres({ ...good, ...change }, "locks", "fences");
      expect(wrong(checks), JSON.stringify(change)).toEqual(found);
    }
  });

  it("judges SQLite", () => {
    const good = {
      version: "3.50.0",
      isFile: true,
      journalMode: "wal",
      isIntact: true,
      sizeBytes: 4096,
      counters: 1,
    };
    for (const [change, found] of [
      [{}, []],
      [{ isFile: false, journalMode: "memory" }, ["file warn"]],
      [{ journalMode: "delete" }, ["file fail"]],
      [{ isIntact: false }, ["integrity fail"]],
      [{ counters: 2_000_000 }, ["size warn"]],
    ] as const) {
      expect(wrong(judgeSqlite({ ...good, ...change })), JSON.stringify(change)).toEqual(found);
    }
  });

  it("judges a clock by whether locks end by it", () => {
    for (const [skewMs, decides, status] of [
      [100, true, "ok"],
      [-250, true, "warn"],
      [600, true, "fail"],
      [600, false, "ok"],
      [-6_000, false, "warn"],
    ] as const) {
      expect(judgeClock(skewMs, decides).status, String(skewMs)).toBe(status);
    }
    expect(judgeClock(600, false).message).toContain("behind");
    expect(judgeClock(-600, false).message).toContain("ahead");
  });
});

describe("messages", () => {
  it("keep their lines, of which only the first is ours, and nothing that moves a cursor", () => {
    const write = vi.spyOn(process.stderr, "write").mockReturnValue(true);
    try {
      new Output(false, false).note("not loaded\n  name: \u001b[2J\nsyncguard: no line of ours");
      expect(write.mock.calls.map(([text]) => text)).toEqual([
        "syncguard: not loaded\n  name: \\x1b[2J\n  syncguard: no line of ours\n",
      ]);
    } finally {
      write.mockRestore();
    }
  });
});
