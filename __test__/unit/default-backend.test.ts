import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { inspect } from "node:util";
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { lock, setDefaultBackend } from "syncguard";
import { createFirestoreBackend } from "syncguard/firestore";
import { createPostgresBackend } from "syncguard/postgres";
import { createRedisBackend } from "syncguard/redis";
import { createSqliteBackend } from "syncguard/sqlite";
import { lockError, thrownLockError } from "../support/errors";
import { fakeBackend } from "../support/fake-backend";
import { isFromTheClock } from "../support/fences";
import { startPostgres } from "../support/postgres";
import { startEmulator } from "../support/firestore";
import { startRedis } from "../support/redis";
import { temporaryFolder } from "../support/temp";

const KEY = "some:key";

let folder: ReturnType<typeof temporaryFolder>;
beforeEach(() => {
  folder = temporaryFolder();
  vi.stubEnv("SYNCGUARD_URL", undefined);
});
afterEach(() => {
  setDefaultBackend(undefined);
  folder.remove();
});

describe("SYNCGUARD_URL", () => {
  const use = (url: string): Promise<string> => {
    vi.stubEnv("SYNCGUARD_URL", url);
    return lock(({ fence }) => fence, { key: KEY });
  };
  /** Expects that the default backend has its locks at that URL where `backend` has them. */
  const expectShared = async (
    url: string,
    backend: { isLocked: (opts: { key: string }) => Promise<boolean> },
    isShared = true,
  ): Promise<void> => {
    vi.stubEnv("SYNCGUARD_URL", url);
    expect(await lock(() => backend.isLocked({ key: KEY }), { key: KEY })).toBe(isShared);
  };

  test("names a database file", async () => {
    const file = join(folder.path, "locks.db");
    const backend = createSqliteBackend(file);
    await expectShared(`sqlite://${file}`, backend);
    await expectShared(`sqlite:${file}`, backend);
    const other = join(folder.path, "a b?.db");
    const escaped = `sqlite://${other.replace(" ", "%20").replace("?", "%3F")}`;
    await expectShared(escaped, backend, false);
    await expectShared(escaped, createSqliteBackend(other));
  });

  test("may ask for a database in memory", async () => {
    vi.stubEnv("SYNCGUARD_URL", "sqlite::memory:");
    // One backend for the whole process.
    const again = () => lockError(lock(() => 1, { key: KEY, acquisition: { maxRetries: 0 } }));
    expect(await lock(again, { key: KEY })).toMatchObject({ code: "AcquisitionTimeout" });
  });

  test("may name a Redis server", async () => {
    const server = await startRedis();
    onTestFinished(server.stop);
    const backend = createRedisBackend(`${server.url}/3`);
    onTestFinished(backend.close);
    await expectShared(`${server.url}/3`, backend);
    await expectShared(`${server.url.replace("redis", "REDIS")}/3`, backend);
    await expectShared(`${server.url.replace("redis", "valkey")}/3`, backend);
    await expectShared(`valkey+unix://${server.folder}/redis.sock?db=3`, backend);
    await expectShared(`unix://${server.folder}/redis.sock?db=3`, backend);
    await expectShared(server.url, backend, false);
  });

  test("may name a PostgreSQL server", async () => {
    const server = await startPostgres();
    onTestFinished(server.stop);
    // Nobody has called setupSchema(): the first operations make the tables.
    vi.stubEnv("SYNCGUARD_URL", server.url);
    const keys = ["a", "b", "c", "d"];
    const fences = keys.map((key) => lock(({ fence }) => fence, { key }));
    for (const fence of await Promise.all(fences)) expect(fence).toSatisfy(isFromTheClock);
    const backend = createPostgresBackend(server.url);
    onTestFinished(backend.close);
    await expectShared(server.url, backend);
    await expectShared(server.url.replace("postgres:", "PostgreSQL:"), backend);
  });

  test("may name a Firestore database", async () => {
    const emulator = await startEmulator();
    onTestFinished(emulator.stop);
    vi.stubEnv("FIRESTORE_EMULATOR_HOST", emulator.host);
    const backend = createFirestoreBackend({ projectId: "my-project" });
    onTestFinished(backend.close);
    await expectShared("firestore://my-project", backend);
    await expectShared("FireStore://my-project/(default)", backend);
    await expectShared("firestore://my-project/other", backend, false);
    vi.stubEnv("GOOGLE_CLOUD_PROJECT", "my-project");
    await expectShared("firestore:", backend);
  });

  test.each([
    "firestore://u:secret@h",
    "firestore://project/database/secret",
    "redis://u:secret@h:port",
    "redis+sentinel://u:secret@h",
    "redis+cluster://u:secret@h/1",
    "valkeys://u:secret@h:port",
    "valkey+sentinel://u:secret@h",
    "valkeys-cluster://u:secret@h/1",
    "unix://secret",
    "postgres://u:secret@h:port",
    "postgresql://u:secret@h/d?sslmode=secret",
  ])("is refused and not shown when it makes no sense: %s", async (url) => {
    const error = await lockError(use(url));
    expect(error.code).toBe("InvalidArgument");
    expect(error.message).toMatch(/^SYNCGUARD_URL: /);
    expect(inspect(error)).not.toContain("secret");
  });

  test.each(["", " ", "\t\n"])("is refused when it is empty: %j", async (url) => {
    vi.stubEnv("XDG_STATE_HOME", folder.path);
    const error = await lockError(use(url));
    expect(error.code).toBe("InvalidArgument");
    expect(error.message).toMatch(/SYNCGUARD_URL is set but empty/);
    expect(existsSync(join(folder.path, "syncguard"))).toBe(false);
  });

  test.each(["redis://u:secret@h", "postgres://u:secret@h/d", "sqlite:///secret", "local"])(
    "is refused when a line ends behind it: %s",
    async (url) => {
      const error = await lockError(use(`${url}\n`));
      expect(error.code).toBe("InvalidArgument");
      expect(error.message).toMatch(/^SYNCGUARD_URL ends with a line break.*: trim it$/);
    },
  );

  test.each([
    "http://u:secret@h",
    "secret",
    "/var/secret.db",
    "sqlite",
    "sqlite:",
    "sqlite:///",
    "sqlite://secret/locks.db",
    "sqlite:///secret?mode=ro",
    "sqlite:///secret#x",
    "sqlite:///secret%zz",
  ])("is refused and not shown otherwise: %s", async (url) => {
    const error = await lockError(use(url));
    expect(error.code).toBe("InvalidArgument");
    expect(error.message).toMatch(/SYNCGUARD_URL.*sqlite/);
    expect(inspect(error)).not.toContain("secret");
  });
});

describe("setDefaultBackend", () => {
  test("comes before the environment", async () => {
    vi.stubEnv("SYNCGUARD_URL", "nonsense");
    const backend = fakeBackend();
    setDefaultBackend(backend);
    expect(await lock(() => backend.held.size, { key: KEY })).toBe(1);
    setDefaultBackend(undefined);
    expect((await lockError(lock(() => 1, { key: KEY }))).message).toContain("SYNCGUARD_URL");
  });

  test("takes backends with fences alone", () => {
    const plain = { ...fakeBackend(), capabilities: { supportsFencing: false } };
    for (const backend of [null, {}, "sqlite", plain]) {
      const error = thrownLockError(() => {
        setDefaultBackend(backend as never);
      });
      expect(error.code).toBe("InvalidArgument");
    }
  });
});

describe("without a word", () => {
  test("is a database in the user's state folder, for the user alone", async () => {
    // Something is in the way.
    const blocked = join(folder.path, "file");
    writeFileSync(blocked, "");
    vi.stubEnv("XDG_STATE_HOME", blocked);
    const error = await lockError(lock(() => 1, { key: KEY }));
    expect(error.message).toMatch(/SYNCGUARD_URL.*setDefaultBackend/);
    expect(error.cause).toHaveProperty("code", "ENOTDIR");

    const state = join(folder.path, "state");
    mkdirSync(state);
    vi.stubEnv("XDG_STATE_HOME", state);
    const used = join(state, "syncguard");
    const same = () => createSqliteBackend(join(used, "locks.db"));
    const isLocked = () => same().isLocked({ key: KEY });
    expect(await lock(isLocked, { key: KEY })).toBe(true);
    expect(statSync(used).mode & 0o777).toBe(0o700);
    expect(statSync(join(used, "locks.db")).mode & 0o777).toBe(0o600);
    vi.stubEnv("SYNCGUARD_URL", "local");
    expect(await lock(isLocked, { key: KEY })).toBe(true);
  });

  test("the folder is the platform's", () => {
    const { stateFolder } = createRequire(import.meta.url)("../../dist/default/backend.js") as {
      stateFolder: (env: object, platform: string, home: string) => string;
    };
    expect(stateFolder({}, "linux", "/home/u")).toBe("/home/u/.local/state/syncguard");
    expect(stateFolder({ XDG_STATE_HOME: "/s" }, "linux", "/home/u")).toBe("/s/syncguard");
    expect(stateFolder({ XDG_STATE_HOME: "s" }, "linux", "/home/u")).toBe(
      "/home/u/.local/state/syncguard",
    );
    expect(stateFolder({ XDG_STATE_HOME: "/s" }, "darwin", "/Users/u")).toBe(
      "/Users/u/Library/Application Support/syncguard",
    );
    expect(stateFolder({ LOCALAPPDATA: "/l" }, "win32", "/u")).toBe("/l/syncguard");
    expect(stateFolder({}, "win32", "/u")).toBe("/u/AppData/Local/syncguard");
    const refused = (env: object, platform: string, home: string) => {
      const error = thrownLockError(() => stateFolder(env, platform, home));
      expect(error.code).toBe("InvalidArgument");
      return error.message;
    };
    for (const home of ["", "relative", "./home"]) {
      expect(refused({}, "linux", home)).toMatch(/HOME is no absolute path.*SYNCGUARD_URL/);
      expect(refused({ XDG_STATE_HOME: "s" }, "linux", home)).toMatch(/ HOME /);
      expect(refused({ XDG_STATE_HOME: "" }, "linux", home)).toMatch(/ HOME /);
      expect(refused({}, "darwin", home)).toMatch(/ HOME /);
      expect(refused({}, "win32", home)).toMatch(/ USERPROFILE /);
      expect(stateFolder({ XDG_STATE_HOME: "/s" }, "linux", home)).toBe("/s/syncguard");
    }
    expect(refused({ LOCALAPPDATA: "C:folder" }, "win32", "/u")).toMatch(/ LOCALAPPDATA /);
    expect(stateFolder({ XDG_STATE_HOME: "" }, "linux", "/u")).toBe("/u/.local/state/syncguard");
  });

  // Each in a folder of its own: the locks of one would be no other's.
  test.each(["", "relative", "./home"])("a home that is not absolute is refused: %j", (home) => {
    const root = fileURLToPath(new URL("../..", import.meta.url));
    const program = `require(${JSON.stringify(root)}).lock(() => 1, { key: "k" }).then(
      () => console.log("granted"), (error) => console.log(error.code, error.message))`;
    const env = { PATH: process.env.PATH, HOME: home, XDG_DATA_HOME: "", XDG_STATE_HOME: "" };
    const child = spawnSync(process.execPath, ["-e", program], {
      ...{ cwd: folder.path, env, encoding: "utf8" as const },
    });
    expect(child.stdout).toMatch(/^InvalidArgument .*HOME is no absolute path.*SYNCGUARD_URL/);
    expect(readdirSync(folder.path)).toEqual([]);
  });
});
