import { createServer } from "node:net";
import { once } from "node:events";
import { inspect } from "node:util";
import type { Firestore } from "@google-cloud/firestore";
import {
  afterAll,
  afterEach,
  beforeAll,
  beforeEach,
  describe,
  expect,
  onTestFinished,
  test,
  vi,
} from "vitest";
import { hashKey } from "syncguard";
import {
  createFirestoreBackend,
  createLock,
  type FirestoreBackendOptions,
  type FirestoreConnectionOptions,
} from "syncguard/firestore";
import { expectToEnd, run } from "../support/child";
import { lockError, thrownLockError } from "../support/errors";
import { type Emulator, googleClient, newProject, startEmulator } from "../support/firestore";
import { newKey, take } from "../support/suite";

const SECRET = "very-secret";

let emulator: Emulator;
let db: Firestore;
let projectId: string;
beforeAll(async () => {
  emulator = await startEmulator();
});
afterAll(async () => {
  await emulator.stop();
});
beforeEach(() => {
  vi.stubEnv("FIRESTORE_EMULATOR_HOST", "");
  vi.stubEnv("GOOGLE_CLOUD_PROJECT", "");
  vi.stubEnv("GCLOUD_PROJECT", "");
  projectId = newProject();
  db = googleClient(emulator.host, projectId);
});
afterEach(async () => {
  await db.terminate();
});

describe("options", () => {
  test.each<[string, FirestoreBackendOptions]>([
    ["collection", { collection: "" }],
    ["collection", { collection: "a/b" }],
    ["collection", { collection: "__all__" }],
    ["collection", { collection: ".." }],
    ["collection", { collection: 1 as never }],
    ["fenceCollection", { fenceCollection: "" }],
    ["fenceCollection", { fenceCollection: "a/b" }],
    ["fenceCollection", { fenceCollection: "." }],
    ["fenceCollection", { fenceCollection: "locks" }],
    ["collection", { collection: "same", fenceCollection: "same" }],
    ["cleanupInIsLocked", { cleanupInIsLocked: 1 as never }],
    ["ignoreClockSkew", { ignoreClockSkew: "yes" as never }],
    ["onReleaseError", { onReleaseError: 1 as never }],
    ["disposeTimeoutMs", { disposeTimeoutMs: 0 }],
    ["operationTimeoutMs", { operationTimeoutMs: 0 }],
    ["operationTimeoutMs", { operationTimeoutMs: Number.NaN }],
    ["operationTimeoutMs", { operationTimeoutMs: 3_600_001 }],
    ["operationTimeoutMs", { operationTimeoutMs: "1" as never }],
    ["transport", { transport: "rest" as never }],
    ["did you mean fenceCollection?", { fencecollection: "f" } as never],
  ])("%s is checked: %o", (field, options) => {
    for (const transport of ["native", "client"] as const) {
      const create = () => createFirestoreBackend(db, options && { transport, ...options });
      const error = thrownLockError(create);
      expect(error.code).toBe("InvalidArgument");
      expect(error.message).toContain(field);
    }
  });

  test.each<[string, FirestoreConnectionOptions]>([
    ["projectId", { projectId: "" }],
    ["projectId", { projectId: "a/b" }],
    ["projectId", { projectId: 1 as never }],
    ["databaseId", { databaseId: "" }],
    ["credentials", { credentials: SECRET as never }],
    ["keyFilename", { keyFilename: 1 as never }],
    ["credentials", { credentials: { private_key: SECRET }, keyFilename: "key.json" }],
    ["emulatorHost", { emulatorHost: "http://localhost:8080" }],
    ["host", { host: "a/b" }],
    ["ssl", { ssl: "yes" as never }],
    ["url", { url: "x" } as never],
    ["db", "projects/p" as never],
    ["db", null as never],
  ])("of the connection: %s is checked: %o", (field, connection) => {
    const error = thrownLockError(() => createFirestoreBackend(connection));
    expect(error.code).toBe("InvalidArgument");
    expect(error.message).toContain(field);
    expect(inspect(error)).not.toContain(SECRET);
  });

  test("collections hold what their names say", async () => {
    const options = { collection: "my-locks", fenceCollection: "my-fences" };
    for (const transport of ["native", "client"] as const) {
      const backend = createFirestoreBackend(db, { ...options, transport });
      const key = newKey();
      const held = await take(backend, key);
      expect((await db.collection("my-locks").doc(key).get()).data()).toEqual({
        key,
        lockId: held.lockId,
        fence: held.fence,
        expiresAtMs: held.expiresAtMs,
        acquiredAtMs: held.expiresAtMs - 30_000,
        owner: expect.stringMatching(`:${process.pid}$`) as string,
      });
      expect((await db.collection("my-fences").doc(`fence:${key}`).get()).data()).toEqual({
        fence: held.fence,
        keyDebug: key,
      });
      await backend.close();
    }
  });

  test("createLock binds a backend", async () => {
    const lock = createLock(db);
    const key = newKey();
    await lock(
      async () => {
        expect((await db.collection("locks").doc(key).get()).exists).toBe(true);
      },
      { key },
    );
    expect((await db.collection("locks").doc(key).get()).exists).toBe(false);
  });
});

describe("connecting", () => {
  test("the environment is enough", async () => {
    vi.stubEnv("FIRESTORE_EMULATOR_HOST", emulator.host);
    vi.stubEnv("GOOGLE_CLOUD_PROJECT", projectId);
    const backend = createFirestoreBackend();
    const key = newKey();
    await take(backend, key);
    expect((await db.collection("locks").doc(key).get()).exists).toBe(true);
    await backend.close();
  });

  test("creation connects to nobody, and the first operation says what is missing", async () => {
    let connections = 0;
    const server = createServer(() => (connections += 1)).listen(0, "127.0.0.1");
    await once(server, "listening");
    onTestFinished(() => void server.close());
    const { port } = server.address() as { port: number };
    const backend = createFirestoreBackend({ emulatorHost: `127.0.0.1:${port}` });
    const error = await lockError(backend.acquire({ key: newKey(), ttlMs: 1_000 }));
    expect(error.code).toBe("InvalidArgument");
    expect(error.message).toBe("projectId is missing: set it, or GOOGLE_CLOUD_PROJECT");
    expect(connections).toBe(0);
    await backend.close();
  });

  test("a key file that is not there is found out by the first operation", async () => {
    const backend = createFirestoreBackend({ projectId, keyFilename: `/${SECRET}/key.json` });
    const error = await lockError(backend.isLocked({ key: newKey() }));
    expect(["InvalidArgument", "AuthFailed"]).toContain(error.code);
    await backend.close();
  });

  test("a server that is down is found out by the first operation", async () => {
    const server = createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as { port: number };
    server.close();
    await once(server, "close");
    const backend = createFirestoreBackend({ projectId, emulatorHost: `127.0.0.1:${port}` });
    const error = await lockError(backend.isLocked({ key: newKey() }));
    expect(error.code).toBe("ServiceUnavailable");
    await backend.close();
  });

  test("a client's database is the backend's", async () => {
    const other = googleClient(emulator.host, projectId);
    other.settings({ databaseId: "other" });
    for (const transport of ["native", "client"] as const) {
      const backend = createFirestoreBackend(other, { transport });
      const key = newKey();
      await take(backend, key);
      expect((await other.collection("locks").doc(key).get()).exists).toBe(true);
      expect((await db.collection("locks").doc(key).get()).exists).toBe(false);
      await backend.close();
    }
    await other.terminate();
  });
});

describe("round trips", () => {
  const key = newKey();

  test.each(["native", "client"] as const)("are few: %s", async (transport) => {
    // Of its own: what another test left under way is not counted here.
    const emulator = await startEmulator();
    onTestFinished(() => emulator.stop());
    const client = googleClient(emulator.host);
    const backend = createFirestoreBackend(client, { transport });
    await backend.isLocked({ key });
    const calls = async () => {
      const counts = await emulator.calls();
      await emulator.resetCalls();
      return counts;
    };
    await calls();
    const held = await take(backend, key);
    expect(await calls()).toEqual({ BatchGetDocuments: 1, Commit: 1 });
    await backend.extend({ lockId: held.lockId, ttlMs: 5_000 });
    expect(await calls()).toEqual({ RunQuery: 1, Commit: 1 });
    await backend.isLocked({ key });
    expect(await calls()).toEqual({ BatchGetDocuments: 1 });
    await backend.lookup({ key });
    expect(await calls()).toEqual({ BatchGetDocuments: 1 });
    await backend.lookup({ lockId: held.lockId });
    expect(await calls()).toEqual({ RunQuery: 1 });
    await held.release();
    expect(await calls()).toEqual({ RunQuery: 1, Commit: 1 });
    await backend.close();
    await client.terminate();
  });
});

describe.each(["native", "client"] as const)("documents, %s", (transport) => {
  test("keys that are no ids are locked like others", async () => {
    const backend = createFirestoreBackend(db, { transport });
    for (const key of ["a/b", "/", ".", "..", "__all__", "//", "x".repeat(512), "ключ/ä"]) {
      const held = await take(backend, key);
      expect(await backend.acquire({ key, ttlMs: 1_000 })).toMatchObject({ ok: false });
      expect(await backend.lookup({ key })).toMatchObject({ keyHash: hashKey(key) });
      expect(await held.release()).toEqual({ ok: true });
    }
    await backend.close();
  });

  test("several documents with one lockId are reported without it, and left alone", async () => {
    const warn = vi.spyOn(console, "warn").mockReturnValue();
    const backend = createFirestoreBackend(db, { transport });
    const [key, copy] = [newKey(), newKey()];
    const held = await take(backend, key);
    const document = (await db.collection("locks").doc(key).get()).data()!;
    await db.collection("locks").doc(copy).set(document);
    expect(await held.release()).toEqual({ ok: false });
    expect(warn.mock.calls).toEqual([
      [
        `[SyncGuard] Several lock documents carry one lockId: lockIdHash=${hashKey(held.lockId)}, live=2, expired=0`,
      ],
    ]);
    expect((await db.collection("locks").doc(copy).get()).exists).toBe(true);

    await db.collection("locks").doc(copy).update({ expiresAtMs: 1 });
    expect(await backend.release({ lockId: held.lockId })).toEqual({ ok: true });
    expect(String(warn.mock.calls[1])).toContain("live=1, expired=1");
    expect((await db.collection("locks").doc(copy).get()).exists).toBe(false);
    await backend.close();
  });

  test("a document that nobody could have written is not overwritten", async () => {
    const backend = createFirestoreBackend(db, { transport });
    const key = newKey();
    await db.collection("locks").doc(key).set({ lockId: 7, expiresAtMs: "soon" });
    const error = await lockError(backend.acquire({ key, ttlMs: 1_000 }));
    expect(error.code).toBe("Internal");
    expect((await db.collection("locks").doc(key).get()).data()?.lockId).toBe(7);
    await backend.close();
  });
});

describe.each(["native", "client"] as const)("a process, %s", (transport) => {
  test("ends by itself", async () => {
    await expectToEnd("node", "../../firestore/fixtures/use-and-end.mjs", [
      emulator.host,
      transport,
    ]);
  });

  test("lives until its operations have ended", async () => {
    const { code, stdout, stderr } = await run("node", "../../firestore/fixtures/in-flight.mjs", [
      emulator.host,
      transport,
    ]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout.match(/acquired/g)).toHaveLength(20);
  });
});
