/** Clients that are driven themselves: mocks and wrappers, with no more than the methods that locks need. */

import { inspect } from "node:util";
import { Firestore } from "@google-cloud/firestore";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import type { LockErrorCode } from "syncguard";
import {
  createFirestoreBackend,
  type FirestoreBackendOptions,
  type FirestoreClient,
} from "syncguard/firestore";
import { formatFence } from "syncguard/common";
import { lockError, thrownLockError } from "../support/errors";
import { isFromTheClock } from "../support/fences";
import { googleClient, startEmulator } from "../support/firestore";
import { type Backend, newKey, take } from "../support/suite";
import { until } from "../support/until";

type Data = Record<string, unknown>;
type Ref = { collection: string; id: string; get: () => Promise<Snapshot> };
type Snapshot = { id: string; ref: Ref; exists: boolean; data: () => Data | undefined };
type Query = { find: () => { docs: Snapshot[]; empty: boolean } };
type Run = (transaction: unknown) => Promise<unknown>;

/** Documents in a map. A transaction applies its writes when its function has returned. */
class FakeFirestore implements FirestoreClient {
  readonly documents = new Map<string, Data>();
  readonly written: string[] = [];
  /** Transactions that have not ended. */
  open = 0;
  /** What happens between a read outside of a transaction and its answer. */
  meanwhile = (): void => undefined;

  collection = (collection: string) => ({
    doc: (id: string) => this.#ref(collection, id),
    where: (field: string, _operator: "==", value: unknown) => {
      const find = () => {
        const docs = [...this.documents]
          .filter(([path, data]) => path.startsWith(`${collection}/`) && data[field] === value)
          .map(([path]) =>
            this.#snapshot(this.#ref(collection, path.slice(collection.length + 1))),
          );
        return { docs, empty: docs.length === 0 };
      };
      return { find, get: async () => this.#answer(find()) };
    },
  });

  runTransaction = async (run: Run): Promise<unknown> => {
    this.open += 1;
    try {
      return await this.attempt(run);
    } finally {
      this.open -= 1;
    }
  };

  async attempt(run: Run): Promise<unknown> {
    const writes: (() => void)[] = [];
    const result = await run({
      get: async (what: Ref | Query) => ("find" in what ? what.find() : this.#snapshot(what)),
      set: ({ collection, id }: Ref, data: Data) => {
        writes.push(() => {
          this.documents.set(`${collection}/${id}`, data);
          this.written.push(`set ${collection}`);
        });
      },
      update: ({ collection, id }: Ref, data: Data) => {
        const path = `${collection}/${id}`;
        writes.push(() => {
          this.documents.set(path, { ...this.documents.get(path), ...data });
          this.written.push(`update ${collection}`);
        });
      },
      delete: ({ collection, id }: Ref) => {
        writes.push(() => {
          this.documents.delete(`${collection}/${id}`);
          this.written.push(`delete ${collection}`);
        });
      },
    });
    for (const write of writes) write();
    return result;
  }

  #ref(collection: string, id: string): Ref {
    const ref: Ref = { collection, id, get: async () => this.#answer(this.#snapshot(ref)) };
    return ref;
  }

  #answer<T>(read: T): T {
    this.meanwhile();
    return read;
  }

  #snapshot(ref: Ref): Snapshot {
    const data = this.documents.get(`${ref.collection}/${ref.id}`);
    return { id: ref.id, ref, exists: data !== undefined, data: () => data && { ...data } };
  }
}

function connect(client: FirestoreClient, options?: FirestoreBackendOptions): Backend {
  const backend = createFirestoreBackend(client, options);
  onTestFinished(() => backend.close());
  return backend;
}

describe("a mock", () => {
  test("is driven through runTransaction, collection, doc and where", async () => {
    const client = new FakeFirestore();
    const backend = connect(client);
    const key = newKey();
    const held = await take(backend, key, 5_000);
    expect(client.documents.get(`locks/${key}`)).toEqual({
      key,
      lockId: held.lockId,
      fence: formatFence(held.expiresAtMs - 5_000),
      acquiredAtMs: held.expiresAtMs - 5_000,
      expiresAtMs: held.expiresAtMs,
      owner: expect.stringMatching(`:${process.pid}$`) as string,
    });
    expect(client.documents.get(`fence_counters/fence:${key}`)).toEqual({
      fence: held.fence,
      keyDebug: key,
    });
    expect(await backend.acquire({ key, ttlMs: 5_000 })).toMatchObject({ ok: false });
    expect(await backend.isLocked({ key })).toBe(true);
    expect(await backend.lookup({ lockId: held.lockId })).toMatchObject({ fence: held.fence });
    expect(await held.extend(60_000)).toMatchObject({ ok: true });
    expect(await held.release()).toEqual({ ok: true });
    expect(await backend.isLocked({ key })).toBe(false);
    expect(client.written).toEqual([
      "set fence_counters",
      "set locks",
      "update locks",
      "delete locks",
    ]);
    await until(() => client.open === 0);
  });

  test("takes the time from Date.now, within the transaction", async () => {
    const backend = connect(new FakeFirestore());
    const key = newKey();
    const now = vi.spyOn(Date, "now").mockReturnValue(1_700_000_000_000);
    expect((await take(backend, key, 5_000)).expiresAtMs).toBe(1_700_000_005_000);
    now.mockReturnValue(1_700_000_005_999);
    expect(await backend.isLocked({ key })).toBe(true);
    now.mockReturnValue(1_700_000_006_000);
    expect(await backend.isLocked({ key })).toBe(false);
    expect((await take(backend, key)).fence).toBe("001700000006000");
  });

  test("that answers late shows what was held when it was asked", async () => {
    const client = new FakeFirestore();
    const backend = connect(client);
    const key = newKey();
    const now = vi.spyOn(Date, "now").mockReturnValue(1_700_000_000_000);
    const { lockId } = await take(backend, key, 5_000);
    const answers = [
      () => backend.isLocked({ key }),
      () => backend.lookup({ key }).then((info) => info !== null),
      () => backend.lookup({ lockId }).then((info) => info !== null),
    ];
    for (const isHeld of answers) {
      now.mockReturnValue(1_700_000_000_000);
      // Its holder may have extended it in that time.
      client.meanwhile = () => now.mockReturnValue(1_700_000_060_000);
      expect(await isHeld()).toBe(true);
    }
  });

  test("that gives big integers is understood", async () => {
    const client = new FakeFirestore();
    const backend = connect(client);
    const key = newKey();
    const held = await take(backend, key);
    const document = client.documents.get(`locks/${key}`)!;
    client.documents.set(`locks/${key}`, {
      ...document,
      expiresAtMs: BigInt(held.expiresAtMs),
      acquiredAtMs: BigInt(document.acquiredAtMs as number),
    });
    expect(await backend.lookup({ key })).toMatchObject({ expiresAtMs: held.expiresAtMs });
  });

  test("that repeats transactions by itself writes nothing that was decided before", async () => {
    const client = new FakeFirestore();
    const key = newKey();
    const path = `locks/${key}`;
    let conflicts = 1;
    vi.spyOn(client, "attempt").mockImplementation(async function (this: FakeFirestore, run) {
      const once = FakeFirestore.prototype.attempt.bind(client);
      if (conflicts-- <= 0) return await once(run);
      // Somebody takes the lock between the reads and the writes; nothing is written.
      const discarded = { get: async () => ({ data: () => undefined }), set: () => undefined };
      await run(discarded);
      const expiresAtMs = Date.now() + 60_000;
      client.documents.set(path, { lockId: "x".repeat(22), expiresAtMs });
      return await once(run);
    });
    const backend = connect(client);
    // For all that is known, the first attempt may have been carried out.
    const error = await lockError(backend.acquire({ key, ttlMs: 5_000 }));
    expect(error.code).toBe("ServiceUnavailable");
    expect(client.documents.get(path)?.lockId).toBe("x".repeat(22));
    expect(client.written).toEqual([]);
    await until(() => client.open === 0);
  });

  test("that repeats transactions after it wrote leaves no lock that nobody owns", async () => {
    const client = new FakeFirestore();
    const attempt = client.attempt.bind(client);
    let lost = 1;
    client.attempt = async (run) => {
      const result = await attempt(run);
      // The reply was lost: wrappers that know no maxAttempts try again.
      return lost-- > 0 ? await attempt(run) : result;
    };
    const backend = connect(client);
    const key = newKey();
    const error = await lockError(backend.acquire({ key, ttlMs: 60_000 }));
    expect(error.code).toBe("ServiceUnavailable");
    await until(() => !client.documents.has(`locks/${key}`));
    const { fence } = client.documents.get(`fence_counters/fence:${key}`) ?? {};
    expect((await take(backend, key)).fence > String(fence)).toBe(true);
  });

  test("that repeats transactions while it reads is no error", async () => {
    const client = new FakeFirestore();
    const attempt = client.attempt.bind(client);
    let conflicts = 1;
    client.attempt = async (run) => {
      if (conflicts-- > 0) {
        const failing = { get: () => Promise.reject(new Error("contention")) };
        await run(failing).catch(() => undefined);
      }
      return await attempt(run);
    };
    expect((await take(connect(client), newKey())).fence).toSatisfy(isFromTheClock);
  });

  test("whose reads never end does not hold up operations, nor transactions for ever", async () => {
    const client = new FakeFirestore();
    let read = (): void => undefined;
    const stuck = new Promise<void>((resolve) => (read = resolve));
    const attempt = client.attempt.bind(client);
    client.attempt = async (run) => {
      await stuck;
      return await attempt(run);
    };
    const backend = connect(client, { operationTimeoutMs: 50 });
    const key = newKey();
    const error = await lockError(backend.acquire({ key, ttlMs: 5_000 }));
    expect(error.code).toBe("NetworkTimeout");
    // The acquisition's; that of the release which undoes it may have begun as well.
    expect(client.open).toBeGreaterThan(0);
    read();
    // What they read at last, nobody waits for.
    await until(() => client.open === 0);
    expect(client.written).toEqual([]);
  });
});

describe("an error of the client", () => {
  const SECRET = "secret:key";
  const ERRORS: readonly (readonly [unknown, LockErrorCode])[] = [
    [3, "InvalidArgument"],
    [4, "NetworkTimeout"],
    [5, "InvalidArgument"],
    [7, "AuthFailed"],
    [8, "RateLimited"],
    [9, "InvalidArgument"],
    [13, "ServiceUnavailable"],
    [14, "ServiceUnavailable"],
    [16, "AuthFailed"],
    [2, "Internal"],
    [99, "Internal"],
    ["PERMISSION_DENIED", "AuthFailed"],
    ["resource-exhausted", "RateLimited"],
    ["ECONNREFUSED", "ServiceUnavailable"],
    ["whatever", "Internal"],
    [undefined, "Internal"],
  ];
  test.each(ERRORS)("with code %s is %s", async (code, expected) => {
    const thrown = Object.assign(new Error(`failed on ${SECRET}`), { code });
    const client = { collection: vi.fn(), runTransaction: vi.fn().mockRejectedValue(thrown) };
    const error = await lockError(connect(client).acquire({ key: SECRET, ttlMs: 5_000 }));
    expect(error.code).toBe(expected);
    expect(error.message).not.toContain(SECRET);
    expect(inspect(error.cause)).not.toContain(SECRET);
  });

  test.each([10, "ABORTED"])("with code %s is a conflict: it begins anew", async (code) => {
    const client = new FakeFirestore();
    const attempt = client.attempt.bind(client);
    let conflicts = 2;
    client.attempt = async (run) => {
      const result = conflicts > 0 ? await run({ get: async () => ({ data: () => undefined, docs: [] }), set: () => undefined }) : await attempt(run); // prettier-ignore
      if (conflicts-- > 0) throw Object.assign(new Error("contention"), { code });
      return result;
    };
    expect((await take(connect(client), newKey())).fence).toSatisfy(isFromTheClock);
    expect(client.written).toEqual(["set fence_counters", "set locks"]);
  });

  test("thrown at once is a rejection like any", async () => {
    const client = {
      collection: vi.fn(),
      runTransaction: () => {
        throw new Error("not today");
      },
    };
    const error = await lockError(connect(client).acquire({ key: newKey(), ttlMs: 5_000 }));
    expect(error.code).toBe("Internal");
  });
});

describe("the settings of a client", () => {
  const native = (db: FirestoreClient) => createFirestoreBackend(db, { transport: "native" });

  test.each([
    ["preferRest", { preferRest: true }],
    ["customHeaders", { customHeaders: { a: "b" } }],
    ["authClient", { authClient: {} }],
    ["universeDomain", { universeDomain: "example.com" }],
  ])("that cannot be carried over are named: %s", async (name, settings) => {
    const db = googleClient("127.0.0.1:1");
    db.settings(settings);
    const error = thrownLockError(() => native(db));
    expect(error.code).toBe("InvalidArgument");
    expect(error.message).toBe(`transport "native" cannot take over ${name} of the client`);
    await db.terminate();
  });

  test("behind a Proxy are not used, because it may change what the client does", async () => {
    const db = googleClient("127.0.0.1:1");
    const proxy = new Proxy(db, {});
    expect(createFirestoreBackend(proxy).transport?.way).toBe("client");
    expect(createFirestoreBackend(db).transport?.way).toBe("native");
    expect(thrownLockError(() => native(proxy)).message).toContain("which go through a Proxy");
    await db.terminate();
  });

  test("are the same after it was used", async () => {
    const emulator = await startEmulator();
    onTestFinished(emulator.stop);
    const db = googleClient(emulator.host);
    await db.collection("c").doc("d").get();
    const backend = native(db);
    expect((await take(backend, newKey())).fence).toSatisfy(isFromTheClock);
    await backend.close();
    await db.terminate();
  });

  test("of a mock cannot be read, and methods that were replaced are called", async () => {
    expect(thrownLockError(() => native(new FakeFirestore())).message).toContain("class's");
    const db = googleClient("127.0.0.1:1");
    const runTransaction = vi.spyOn(db, "runTransaction").mockRejectedValue({ code: 7 });
    expect(thrownLockError(() => native(db)).message).toContain("runTransaction");
    const error = await lockError(connect(db).acquire({ key: newKey(), ttlMs: 1_000 }));
    expect(error.code).toBe("AuthFailed");
    expect(runTransaction).toHaveBeenCalledTimes(1);
    await db.terminate();
  });

  test("of a subclass or a patched class are not enough when it replaces a method", async () => {
    class Sub extends Firestore {
      override runTransaction(): Promise<never> {
        return Promise.reject(Object.assign(new Error("no"), { code: 7 }));
      }
    }
    const sub = new Sub({ projectId: "p" });
    expect(thrownLockError(() => native(sub)).message).toContain("runTransaction");
    const error = await lockError(connect(sub).acquire({ key: newKey(), ttlMs: 1_000 }));
    expect(error.code).toBe("AuthFailed");
    const spy = vi.spyOn(Firestore.prototype, "collection");
    expect(thrownLockError(() => native(googleClient("127.0.0.1:1"))).message).toContain(
      "collection",
    );
    spy.mockRestore();
    await sub.terminate();
  });

  test("one that has been terminated is refused, and nothing goes unheard", async () => {
    const unheard = vi.fn();
    process.on("unhandledRejection", unheard);
    onTestFinished(() => {
      process.off("unhandledRejection", unheard);
    });
    const db = googleClient("127.0.0.1:1");
    await db.terminate();
    const backend = createFirestoreBackend(db, { transport: "client" });
    const [acquired, released, locked] = await Promise.all([
      lockError(backend.acquire({ key: newKey(), ttlMs: 1_000 })),
      lockError(backend.release({ lockId: "A".repeat(22) })),
      lockError(backend.isLocked({ key: newKey() })),
    ]);
    for (const { code } of [acquired, released, locked]) expect(code).toBe("InvalidArgument");
    // Rejections that nobody has heard are reported when the microtasks are done.
    await new Promise(setImmediate);
    expect(unheard).not.toHaveBeenCalled();
  });

  test('transport "client" needs a client', () => {
    const create = () => createFirestoreBackend({ projectId: "p" }, { transport: "client" });
    expect(thrownLockError(create).message).toContain("runTransaction");
  });
});
