/**
 * What @google-cloud/firestore sees of the emulator, or of whatever listens at FIRESTORE_EMULATOR_HOST: the guarantees
 * that a lock needs, and the status codes that go with them.
 */
import {
  type Firestore,
  FieldValue,
  Timestamp,
  type DocumentReference,
} from "@google-cloud/firestore";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { anyEmulator, type Emulator, googleClient, newProject } from "../support/firestore";

let run = 0;
let emulator: Pick<Emulator, "host" | "stop">;
let clients: Firestore[];
let db: Firestore;
let collection: string;

beforeAll(async () => {
  emulator = await anyEmulator();
  const projectId = newProject();
  clients = Array.from({ length: 2 }, () => googleClient(emulator.host, projectId));
  db = clients[0]!;
});

afterAll(async () => {
  await Promise.all(clients.map((client) => client.terminate()));
  await emulator.stop();
});

beforeEach(() => {
  collection = `c${Date.now()}x${run++}`;
});

describe("documents", () => {
  test("create, set, update, delete and their codes", async () => {
    const doc = db.collection(collection).doc("a");
    await expect(doc.update({ n: 1 })).rejects.toMatchObject({ code: 5 });
    await doc.create({ n: 1, map: { x: 1, y: 2 }, none: null });
    await expect(doc.create({ n: 1 })).rejects.toMatchObject({ code: 6 });
    await doc.update({ n: FieldValue.increment(2), "map.x": FieldValue.delete() });
    await doc.set({ list: FieldValue.arrayUnion("p", "p", "q") }, { merge: true });
    await doc.update({ list: FieldValue.arrayRemove("p"), at: FieldValue.serverTimestamp() });
    const { at, ...rest } = (await doc.get()).data() ?? {};
    expect(rest).toEqual({ n: 3, map: { y: 2 }, none: null, list: ["q"] });
    expect(at).toBeInstanceOf(Timestamp);
    await doc.delete();
    expect((await doc.get()).exists).toBe(false);
  });

  test("a stale updateTime precondition fails with 9", async () => {
    const doc = db.collection(collection).doc("a");
    const first = await doc.set({ n: 1 });
    const second = await doc.set({ n: 2 });
    await expect(doc.update({ n: 3 }, { lastUpdateTime: first.writeTime })).rejects.toMatchObject({
      code: 9,
    });
    await expect(doc.delete({ lastUpdateTime: first.writeTime })).rejects.toMatchObject({
      code: 9,
    });
    await doc.update({ n: 3 }, { lastUpdateTime: second.writeTime });
    expect((await doc.get()).get("n")).toBe(3);
  });

  test("a failed batch leaves nothing", async () => {
    const [a, b] = [db.collection(collection).doc("a"), db.collection(collection).doc("b")];
    await expect(db.batch().set(a, { n: 1 }).update(b, { n: 1 }).commit()).rejects.toMatchObject({
      code: 5,
    });
    expect((await a.get()).exists).toBe(false);
  });

  test("a bulk writer's writes stand alone", async () => {
    const [a, b] = [db.collection(collection).doc("a"), db.collection(collection).doc("b")];
    await b.create({ n: 1 });
    const writer = db.bulkWriter();
    const failed = writer.create(b, { n: 2 }).then(
      () => undefined,
      (error: unknown) => (error as { code: number }).code,
    );
    void writer.set(a, { n: 1 });
    await writer.close();
    expect(await failed).toBe(6);
    expect((await a.get()).get("n")).toBe(1);
    expect((await b.get()).get("n")).toBe(1);
  });

  test("queries filter, select, order, limit and list", async () => {
    const all = db.collection(collection);
    await Promise.all([3, 1, 2].map((n) => all.doc(`d${n}`).set({ n, group: n % 2, other: true })));
    const odd = await all.where("group", "==", 1).where("other", "==", true).select("n").get();
    expect(odd.docs.map((doc) => doc.data())).toEqual([{ n: 1 }, { n: 3 }]);
    const last = await all.orderBy("n", "desc").limit(2).get();
    expect(last.docs.map((doc) => doc.id)).toEqual(["d3", "d2"]);
    expect((await all.where("n", ">", 1).get()).size).toBe(2);
    expect((await all.where("group", "==", "1").get()).empty).toBe(true);
    expect((await all.listDocuments()).map((doc) => doc.id)).toEqual(["d1", "d2", "d3"]);
  });
});

describe("transactions", () => {
  test("2 clients × 50 increments end at exactly 100", async () => {
    await db.collection(collection).doc("counter").set({ n: 0 });
    await Promise.all(
      clients.map(async (client) => {
        const doc = client.collection(collection).doc("counter");
        for (let i = 0; i < 50; i++) {
          await client.runTransaction(
            async (transaction) => {
              const stored = await transaction.get(doc);
              transaction.update(doc, { n: (stored.get("n") as number) + 1 });
            },
            { maxAttempts: 20 },
          );
        }
      }),
    );
    expect((await db.collection(collection).doc("counter").get()).get("n")).toBe(100);
  }, 60_000);

  test("a race to create one missing document has one winner", async () => {
    const outcomes = await race(async (client, name) => {
      const doc = client.collection(collection).doc("lock");
      return client.runTransaction(async (transaction) => {
        if ((await transaction.get(doc)).exists) return false;
        transaction.set(doc, { owner: name });
        return true;
      });
    });
    expect(outcomes.filter(Boolean)).toHaveLength(1);
  }, 60_000);

  test("a race from a query to an insert has one winner", async () => {
    const outcomes = await race(async (client, name) => {
      const all = client.collection(collection);
      return client.runTransaction(async (transaction) => {
        if (!(await transaction.get(all.where("kind", "==", "lock"))).empty) return false;
        transaction.set(all.doc(name), { kind: "lock" });
        return true;
      });
    });
    expect(outcomes.filter(Boolean)).toHaveLength(1);
    expect((await db.collection(collection).get()).size).toBe(1);
  }, 60_000);

  test("reads are of one moment, in read-only transactions too", async () => {
    const [a, b] = [db.collection(collection).doc("a"), db.collection(collection).doc("b")];
    await db.batch().set(a, { n: 0 }).set(b, { n: 0 }).commit();
    for (const readOnly of [true, false]) {
      let attempts = 0;
      const seen = await db.runTransaction(
        async (transaction) => {
          attempts++;
          const first = await transaction.get(a);
          if (attempts === 1) {
            const next = Date.now();
            await clients[1]!
              .batch()
              .set(other(a), { n: next })
              .set(other(b), { n: next })
              .commit();
          }
          return [first.get("n"), (await transaction.get(b)).get("n")] as number[];
        },
        readOnly ? { readOnly } : {},
      );
      expect(seen[0]).toBe(seen[1]);
    }
  }, 60_000);

  test("an error in the function rolls back", async () => {
    const doc = db.collection(collection).doc("a");
    const failing = db.runTransaction(async (transaction) => {
      await transaction.get(doc);
      transaction.set(doc, { n: 1 });
      throw new Error("no");
    });
    await expect(failing).rejects.toThrow("no");
    expect((await doc.get()).exists).toBe(false);
  });
});

describe("listening", () => {
  test("onSnapshot of a document sees changes in order", async () => {
    const doc = db.collection(collection).doc("a");
    const seen: (number | null)[] = [];
    await listen<number | null>(
      (next, fail) =>
        doc.onSnapshot(
          (snapshot) => next(snapshot.exists ? (snapshot.get("n") as number) : null),
          fail,
        ),
      seen,
      async (until) => {
        await until((values) => values.length === 1);
        for (let n = 1; n <= 20; n++) await other(doc).set({ n });
        await other(doc).delete();
        await until((values) => values.length > 1 && values.at(-1) === null);
      },
    );
    expect(seen).toEqual([null, ...Array.from({ length: 20 }, (_, i) => i + 1), null]);
  });

  test("onSnapshot of a query sees additions, changes and removals in order", async () => {
    const all = db.collection(collection);
    const seen: string[] = [];
    await listen<string>(
      (next, fail) =>
        all.where("on", "==", true).onSnapshot((snapshot) => {
          for (const change of snapshot.docChanges()) next(`${change.type} ${change.doc.id}`);
        }, fail),
      seen,
      async (until) => {
        await other(all.doc("a")).set({ on: true });
        await other(all.doc("b")).set({ on: false });
        await other(all.doc("b")).set({ on: true });
        await other(all.doc("a")).set({ on: true, n: 1 });
        await other(all.doc("b")).update({ on: false });
        await other(all.doc("a")).delete();
        await until((values) => values.includes("removed a"));
      },
    );
    const order = ["added a", "added b", "modified a", "removed b", "removed a"];
    // What happened before the first snapshot arrives as one step, so the start may be shorter.
    expect(order.filter((step) => seen.includes(step))).toEqual(seen);
    expect(seen.slice(-1)).toEqual(["removed a"]);
  });
});

/** The same document, seen by the second client. */
function other(doc: DocumentReference): DocumentReference {
  return clients[1]!.doc(doc.path);
}

/** Two attempts of each client at the same time. */
function race(attempt: (client: Firestore, name: string) => Promise<boolean>): Promise<boolean[]> {
  return Promise.all(
    clients.flatMap((client, i) => [0, 1].map((k) => attempt(client, `client${i}-${k}`))),
  );
}

/** Collects into `seen` while `act` runs; `until` waits for a state of it. */
async function listen<T>(
  subscribe: (next: (value: T) => void, fail: (error: Error) => void) => () => void,
  seen: T[],
  act: (until: (done: (values: T[]) => boolean) => Promise<void>) => Promise<void>,
): Promise<void> {
  let wake = (): void => undefined;
  let failure: Error | undefined;
  const stop = subscribe(
    (value) => {
      seen.push(value);
      wake();
    },
    (error) => {
      failure = error;
      wake();
    },
  );
  try {
    await act(async (done) => {
      while (!done(seen)) {
        if (failure) throw failure;
        await new Promise<void>((resolve) => (wake = resolve));
      }
    });
  } finally {
    stop();
  }
}
