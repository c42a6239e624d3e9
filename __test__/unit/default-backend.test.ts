import { existsSync, mkdirSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { inspect } from "node:util";
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { lock, setDefaultBackend } from "syncguard";
import { createSqliteBackend } from "syncguard/sqlite";
import { lockError, thrownLockError } from "../support/errors";
import { fakeBackend } from "../support/fake-backend";
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

  test("names a database file", async () => {
    const file = join(folder.path, "locks.db");
    expect(await use(`sqlite://${file}`)).toBe("000000000000001");
    expect(await use(`sqlite:${file}`)).toBe("000000000000002");
    expect(existsSync(file)).toBe(true);
    const other = join(folder.path, "a b?.db");
    expect(await use(`sqlite://${other.replace(" ", "%20").replace("?", "%3F")}`)).toBe(
      "000000000000001",
    );
    expect(existsSync(other)).toBe(true);
  });

  test("may ask for a database in memory", async () => {
    expect(await use("sqlite::memory:")).toBe("000000000000001");
    // One backend for the whole process.
    expect(await use("sqlite::memory:")).toBe("000000000000002");
  });

  test("may name a Redis server", async () => {
    const server = await startRedis();
    onTestFinished(server.stop);
    expect(await use(`${server.url}/3`)).toBe("000000000000001");
    expect(await use(`${server.url.replace("redis", "REDIS")}/3`)).toBe("000000000000002");
    expect(await use(`unix://${server.folder}/redis.sock?db=3`)).toBe("000000000000003");
  });

  test("may name a PostgreSQL server", async () => {
    const server = await startPostgres();
    onTestFinished(server.stop);
    // Nobody has called setupSchema(): the first operations make the tables.
    vi.stubEnv("SYNCGUARD_URL", server.url);
    const keys = ["a", "b", "c", "d"];
    const fences = keys.map((key) => lock(({ fence }) => fence, { key }));
    expect(new Set(await Promise.all(fences))).toEqual(new Set(["000000000000001"]));
    expect(await use(server.url)).toBe("000000000000001");
    expect(await use(server.url.replace("postgres:", "PostgreSQL:"))).toBe("000000000000002");
  });

  test("may name a Firestore database", async () => {
    const emulator = await startEmulator();
    onTestFinished(emulator.stop);
    vi.stubEnv("FIRESTORE_EMULATOR_HOST", emulator.host);
    expect(await use("firestore://my-project")).toBe("000000000000001");
    expect(await use("FireStore://my-project/(default)")).toBe("000000000000002");
    expect(await use("firestore://my-project/other")).toBe("000000000000001");
    vi.stubEnv("GOOGLE_CLOUD_PROJECT", "my-project");
    expect(await use("firestore:")).toBe("000000000000003");
  });

  test.each([
    "firestore://u:secret@h",
    "firestore://project/database/secret",
    "redis://u:secret@h:port",
    "redis+sentinel://u:secret@h",
    "redis+cluster://u:secret@h/1",
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
    const fence = await lock((handle) => handle.fence, { key: KEY });
    expect(fence).toBe("000000000000001");
    const used = join(state, "syncguard");
    expect(statSync(used).mode & 0o777).toBe(0o700);
    expect(statSync(join(used, "locks.db")).mode & 0o777).toBe(0o600);
    const same = createSqliteBackend(join(used, "locks.db"));
    expect(await same.acquire({ key: KEY, ttlMs: 5_000 })).toMatchObject({
      fence: "000000000000002",
    });
    await same.forceRelease(KEY);
    vi.stubEnv("SYNCGUARD_URL", "local");
    expect(await lock((handle) => handle.fence, { key: KEY })).toBe("000000000000003");
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
  });
});
