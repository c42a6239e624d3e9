/** The command line on servers: what their locks look like in a list, and what the doctor finds. */

import pg from "pg";
import { createFirestoreBackend } from "syncguard/firestore";
import { createPostgresBackend } from "syncguard/postgres";
import { createRedisBackend } from "syncguard/redis";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { type Finished, startProgram } from "../support/child";
import { cli, json, main, startCli } from "../support/cli";
import { isFromTheClock } from "../support/fences";
import { type Emulator, newProject, startEmulator } from "../support/firestore";
import { PASSWORD, type PostgresServer, startPostgres, USER } from "../support/postgres";
import { type RedisServer, startRedis } from "../support/redis";
import { type RedisCluster, startRedisCluster } from "../support/redis-cluster";

type Check = { name: string; status: string; message: string; fix?: string };
type Found = { ok: boolean; checks: Check[] };
type Page = {
  locks: { key: string; owner: string | null; fence: string; expiresInMs: number }[];
  next: string | null;
};

async function examine(code: number, url: string, ...args: string[]): Promise<Found> {
  return (await json(code, url, "doctor", ...args)) as Found;
}

/** The checks with that name. */
const named = ({ checks }: Found, name: string) => checks.filter((check) => check.name === name);

/** What is not right, in short. */
const wrong = ({ checks }: Found) =>
  checks.filter(({ status }) => status !== "ok").map(({ name, status }) => `${name} ${status}`);

/** A command that is run once for its period, and the second time not at all. */
async function expectOnce(run: (...args: string[]) => Promise<Finished>): Promise<void> {
  for (const stdout of ["mine\n", ""]) {
    const found = await run("exec", "night", "--once", "2026-11-24", "--", "echo", "mine");
    expect(found).toMatchObject({ code: 0, stdout, stderr: "" });
  }
}

/** All keys, read in pages of about that many. */
async function keys(url: string, limit = 100, ...args: string[]): Promise<string[]> {
  const found = new Set<string>();
  let after: string[] = [];
  for (;;) {
    const page = (await json(0, url, "list", "--limit", `${limit}`, ...after, ...args)) as Page;
    for (const { key } of page.locks) found.add(key);
    if (page.next === null) return [...found].sort();
    after = ["--after", page.next];
  }
}

const KEYS = Array.from({ length: 25 }, (_, number) => `job:${number}`).sort();

describe("Redis", () => {
  let server: RedisServer;
  beforeAll(async () => {
    server = await startRedis();
  });
  afterAll(() => server.stop());

  it("lists its locks, and nothing else that begins like them", async () => {
    const backend = createRedisBackend(server.url);
    for (const key of KEYS) await backend.lock(key, { owner: "me" });
    // What an index entry, a fence and another application's keys would be called.
    await backend.lock("id:x");
    await backend.lock("fence:y");
    await server.admin.set("syncguard:text", "{no lock");
    await server.admin.lpush("syncguard:list", "x");
    const others = createRedisBackend(server.url, { keyPrefix: "syncguard:more" });
    await others.lock("theirs");
    const odd = createRedisBackend({ url: server.url, clientKeyPrefix: "app*[1]:" });
    await odd.lock("odd");
    const gone = await backend.lock("gone");
    await gone.release();
    expect(await keys(server.url, 5)).toEqual([...KEYS, "fence:y", "id:x"].sort());
    const valkey = server.url.replace("redis:", "valkey:");
    expect(await keys(valkey)).toEqual([...KEYS, "fence:y", "id:x"].sort());
    expect(await keys(server.url, 100, "--key-prefix", "syncguard:more")).toEqual(["theirs"]);
    expect(await keys(server.url, 100, "--client-key-prefix", "app*[1]:")).toEqual(["odd"]);
    const { locks } = (await json(0, server.url, "list")) as Page;
    expect(locks.find(({ key }) => key === "job:0")).toMatchObject({
      owner: "me",
      fence: expect.toSatisfy(isFromTheClock) as string,
    });
    await Promise.all([backend, others, odd].map((one) => one.close()));
  });

  it("is examined, with what to fix", async () => {
    const well = await examine(0, server.url);
    expect(named(well, "eviction")).toMatchObject([{ status: "ok" }]);
    expect(named(well, "operations")).toMatchObject([{ status: "ok" }]);
    expect(named(well, "clock")).toMatchObject([{ status: "ok" }]);
    expect(wrong(well)).toEqual(["persistence warn"]);
    await server.admin.config("SET", "maxmemory", "100mb");
    await server.admin.config("SET", "maxmemory-policy", "allkeys-lru");
    const bad = await examine(1, server.url);
    expect(bad.ok).toBe(false);
    expect(named(bad, "eviction")).toMatchObject([
      { status: "fail", fix: expect.stringContaining("noeviction") as string },
    ]);
    await server.admin.config("SET", "maxmemory-policy", "noeviction");
    await server.admin.config("SET", "appendonly", "yes");
    expect(wrong(await examine(0, server.url))).toEqual([]);
  });

  it("is known for a replica, with and without the right to ask", async () => {
    const replica = await startRedis({ lines: [`replicaof 127.0.0.1 ${server.port}`] });
    onTestFinished(replica.stop);
    const found = await examine(1, replica.url);
    expect(named(found, "writable")).toEqual([
      {
        name: "writable",
        status: "fail",
        message: "this server is a replica, and takes no locks",
        fix: "connect to the primary",
      },
    ]);
    expect(named(found, "operations")).toEqual([]);
    const rights = "on >s3cr3t ~* &* +@all -info".split(" ");
    await replica.admin.call("ACL", "SETUSER", "asker", ...rights);
    const url = `redis://asker:s3cr3t@127.0.0.1:${replica.port}`;
    expect(named(await examine(1, url, "--timeout", "2s"), "operations")).toMatchObject([
      { message: expect.stringContaining("replica") as string, fix: "connect to the primary" },
    ]);
  });

  it("says which right is missing", async () => {
    const rights = "~syncguard:* &syncguard:* -@all +eval +evalsha +get +set +del +time +ping";
    const set = async (name: string, more: string) =>
      server.admin.call("ACL", "SETUSER", name, "on", ">s3cr3t", ...`${rights} ${more}`.split(" "));
    await set("locker", "-info");
    await set("reader", "-set");
    await set("writer", "+zadd +pexpire");
    const at = (user: string) => `redis://${user}:s3cr3t@127.0.0.1:${server.port}`;
    const locker = await examine(0, at("locker"));
    expect(named(locker, "settings")).toMatchObject([{ status: "warn" }]);
    expect(named(locker, "operations")).toMatchObject([{ status: "ok" }]);
    const list = await cli(at("locker"), "list");
    expect(list.code).toBe(77);
    const reader = await examine(1, at("reader"));
    expect(named(reader, "operations")).toMatchObject([
      { status: "fail", message: expect.stringContaining("acquire") as string },
    ]);
    expect(named(reader, "rights").filter(({ status }) => status === "fail")).toMatchObject([
      { message: expect.stringContaining("SET: the scripts that acquire") as string },
    ]);
    const writer = await examine(0, at("writer"));
    expect(named(writer, "rights")).toContainEqual({
      name: "rights",
      status: "warn",
      message: "the user may not call ZREM, ZREVRANGE, ZREMRANGEBYSCORE: no lock can be shared",
      fix: "ACL SETUSER … +zrem +zrevrange +zremrangebyscore",
    });
    const unknown = await cli(at("nobody"), "doctor");
    expect(unknown.code).toBe(1);
    expect(list.stderr + unknown.stdout + unknown.stderr).not.toContain("s3cr3t");
  });

  it("leaves no lock behind that the user could not release", async () => {
    const rights =
      "~syncguard:* allchannels -@all +eval +evalsha +get +set +time +ping +info +scan " +
      "+zadd +zrem +zrevrange +zremrangebyscore +pexpire";
    const give = async (...more: string[]) =>
      server.admin.call("ACL", "SETUSER", "taker", "on", ">s3cr3t", ...rights.split(" "), ...more);
    await give("+publish", "+subscribe", "+unsubscribe");
    const url = `redis://taker:s3cr3t@127.0.0.1:${server.port}`;
    const found = await examine(1, url);
    expect(named(found, "rights")).toMatchObject([
      {
        status: "fail",
        message: expect.stringContaining("DEL: the script that releases") as string,
      },
    ]);
    expect(named(found, "operations")).toMatchObject([{ status: "fail" }]);
    expect(await server.admin.call("EXISTS", "syncguard:syncguard:doctor")).toBe(0);
    await give("+del", "+publish", "+subscribe", "+unsubscribe");
    expect(named(await examine(0, url), "rights")).toEqual([]);
  });

  it("says why whoever waits would wait longer", async () => {
    const rights = "~syncguard:* -@all +eval +evalsha +get +set +del +time +ping +info +scan";
    const user = async (name: string, ...more: string[]) => {
      await server.admin.call(
        "ACL",
        "SETUSER",
        name,
        "on",
        ">s3cr3t",
        ...rights.split(" "),
        ...more,
      );
      return named(await examine(0, `redis://${name}:s3cr3t@127.0.0.1:${server.port}`), "wake-ups");
    };
    const channels = ["resetchannels", "&syncguard:*"];
    const hearing = ["+subscribe", "+unsubscribe"];
    expect(await user("whole", ...channels, ...hearing, "+publish")).toMatchObject([
      { status: "ok" },
    ]);
    expect(await user("mute", ...channels, ...hearing)).toMatchObject([
      { status: "warn", fix: expect.stringContaining("+publish") as string },
    ]);
    expect(await user("deaf", ...channels, "+publish")).toMatchObject([
      { status: "warn", fix: expect.stringContaining("+subscribe") as string },
    ]);
    expect(
      await user("elsewhere", "resetchannels", "&other:*", ...hearing, "+publish"),
    ).toMatchObject([{ status: "warn", fix: expect.stringContaining("channels") as string }]);
  });

  it("runs commands one after the other, from anywhere", async () => {
    const first = startCli(server.url, "exec", "k", "--", "sh", "-c", "echo started; read line");
    await first.printed("started");
    expect((await cli(server.url, "exec", "k", "--", "true")).code).toBe(75);
    const second = startCli(server.url, "exec", "k", "--wait", "20s", "--", "echo", "mine");
    first.child.stdin.end("\n");
    expect((await first.finished).code).toBe(0);
    expect(await second.finished).toMatchObject({ code: 0, stdout: "mine\n" });
    await expectOnce((...args) => cli(server.url, ...args));
  });
});

describe("Redis Cluster", () => {
  let cluster: RedisCluster;
  beforeAll(async () => {
    cluster = await startRedisCluster();
  }, 60_000);
  afterAll(() => cluster.stop());

  it("lists the locks of all primaries, and examines each", async () => {
    const backend = createRedisBackend(cluster.url);
    await Promise.all(KEYS.map((key) => backend.lock(key)));
    expect(await keys(cluster.url, 5)).toEqual(KEYS);
    const tagged = createRedisBackend(cluster.url, { keyPrefix: "{tag}" });
    await tagged.lock("tagged");
    expect(await keys(cluster.url, 5, "--key-prefix", "{tag}")).toEqual(["tagged"]);
    const found = await examine(0, cluster.url);
    expect(named(found, "eviction")).toHaveLength(3);
    const nodes = named(found, "version").map(({ message }) => message.split(": ")[0]);
    expect(new Set(nodes).size).toBe(3);
    await Promise.all([backend.close(), tagged.close()]);
  });
});

describe("PostgreSQL", () => {
  let server: PostgresServer;
  let admin: pg.Client;
  beforeAll(async () => {
    server = await startPostgres();
    admin = new pg.Client({ connectionString: server.socketUrl });
    await admin.connect();
  });
  afterAll(async () => {
    await admin.end();
    await server.stop();
  });

  const names = ["--table-name", "app_locks", "--fence-table-name", "app_fences"];

  it("is set up, or says what to run", async () => {
    const { url } = server;
    const bare = await examine(1, url, ...names);
    expect(named(bare, "schema")).toMatchObject([
      { status: "fail", fix: expect.stringContaining("npx syncguard setup") as string },
    ]);
    const lookup = await cli(url, "status", "k", ...names);
    expect(lookup.code).toBe(64);
    expect(lookup.stderr).toContain("syncguard setup");
    const { stdout: sql } = await cli(undefined, "setup", "--print", ...names);
    await admin.query(sql);
    const before = await examine(1, url, ...names);
    // The tests' server does not wait for the disk.
    expect(wrong(before)).toEqual(["durability fail"]);
    const [guards] = named(before, "guards");
    expect(guards).toMatchObject({ status: "ok" });
    expect(guards?.message).toMatch(/ of app_locks; .* on app_fences$/);
    expect(await json(0, url, "setup", ...names)).toEqual({ store: "postgres", ready: true });
    expect(await examine(1, url, ...names)).toMatchObject({ ok: false });
    for (const [index, message] of [
      ["expires", "expires_at_ms"],
      ["lock_id", "nothing can be guarded"],
    ]) {
      await admin.query(`DROP INDEX idx_app_locks_${index}`);
      const [indexes] = named(await examine(1, url, ...names), "indexes");
      expect(indexes).toMatchObject({ status: "fail" });
      expect(indexes?.message).toContain(message);
    }
    await json(0, url, "setup", ...names);
    expect(wrong(await examine(1, url, ...names))).toEqual(["durability fail"]);
  });

  it("lists its locks by page", async () => {
    await json(0, server.url, "setup");
    const backend = createPostgresBackend(server.url);
    for (const key of KEYS) await backend.lock(key, { owner: "me" });
    const awkward = 'a"\\,{}\u0001é 💳';
    await backend.lock(awkward);
    await admin.query("UPDATE syncguard_locks SET expires_at_ms = 1 WHERE user_key = 'job:7'");
    const expected = [...KEYS.filter((key) => key !== "job:7"), awkward].sort();
    expect(await keys(server.url, 10)).toEqual(expected);
    const { locks } = (await json(0, server.url, "list")) as Page;
    expect(locks.find(({ key }) => key === "job:0")).toMatchObject({ owner: "me" });
    await backend.close();
  });

  it("says which right is missing, and never the password", async () => {
    await json(0, server.url, "setup");
    await admin.query("CREATE ROLE reader LOGIN PASSWORD 'r3ad'");
    await admin.query("GRANT SELECT ON syncguard_locks, syncguard_fence_counters TO reader");
    const as = (user: string, password: string) =>
      server.url.replace(/\/\/.*@/, `//${user}:${encodeURIComponent(password)}@`);
    const url = as("reader", "r3ad");
    const found = await examine(1, url);
    expect(named(found, "rights")).toMatchObject([
      { fix: 'GRANT INSERT, UPDATE, DELETE ON "syncguard_locks" TO the role' },
      { fix: 'GRANT INSERT, UPDATE ON "syncguard_fence_counters" TO the role' },
    ]);
    expect(named(found, "operations")).toMatchObject([{ status: "fail" }]);
    expect((await cli(url, "exec", "k", "--", "true")).code).toBe(77);
    const refused = await cli(as(USER, `${PASSWORD}x`), "status", "k", "-v");
    expect(refused.code).toBe(77);
    expect(refused.stderr).not.toContain(PASSWORD);
    expect(refused.stderr).not.toContain(encodeURIComponent(PASSWORD));
  });

  it("has its tables made by exec, as by lock()", async () => {
    await admin.query("CREATE DATABASE empty");
    const url = server.url.replace(/\/[^/]*$/, "/empty");
    const { code, stdout } = await cli(url, "exec", "k", "--", "echo", "mine");
    expect({ code, stdout }).toEqual({ code: 0, stdout: "mine\n" });
    await expectOnce((...args) => cli(url, ...args));
  });
});

describe("Firestore", () => {
  let emulator: Emulator;
  beforeAll(async () => {
    emulator = await startEmulator();
  });
  afterAll(() => emulator.stop());

  it("lists its locks by page, and is examined", async () => {
    const projectId = newProject();
    const backend = createFirestoreBackend({ projectId, emulatorHost: emulator.host });
    await Promise.all(KEYS.map((key) => backend.lock(key)));
    const env = {
      SYNCGUARD_URL: `firestore://${projectId}`,
      FIRESTORE_EMULATOR_HOST: emulator.host,
    };
    const start = (...args: string[]): Promise<Finished> =>
      startProgram(process.execPath, [main, ...args], env).finished;
    const run = async (...args: string[]) => {
      const { stdout, stderr } = await start(...args, "--json");
      expect(stderr).toBe("");
      return JSON.parse(stdout) as unknown;
    };
    const first = (await run("list", "--limit", "20")) as Page;
    const rest = (await run("list", "--after", first.next!)) as Page;
    expect([...first.locks, ...rest.locks].map(({ key }) => key)).toEqual(KEYS);
    expect([first.locks.length, rest.next]).toEqual([20, null]);
    const found = (await run("doctor")) as Found;
    expect(named(found, "clock")).toMatchObject([{ status: "ok" }]);
    expect(wrong(found)).toEqual(["emulator warn"]);
    await expectOnce(start);
    await backend.close();
  });
});
