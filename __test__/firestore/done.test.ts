/** What is done once for a period, and stored as done in the user's transaction of Google's client that does it. */

import type { Firestore } from "@google-cloud/firestore";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { OnceHandle, SyncGuardBackend } from "syncguard";
import { createFirestoreBackend, type FirestoreCapabilities } from "syncguard/firestore";
import { lockError } from "../support/errors";
import { type Emulator, googleClient, startEmulator } from "../support/firestore";
import { newKey } from "../support/suite";

let emulator: Emulator;
beforeAll(async () => {
  emulator = await startEmulator();
});
afterAll(() => emulator.stop());

describe.each(["native", "client"] as const)("done(tx) over the transport %s", (transport) => {
  let db: Firestore;
  let backend: SyncGuardBackend<FirestoreCapabilities>;
  beforeAll(() => {
    db = googleClient(emulator.host);
    const collections = { collection: "own-locks", fenceCollection: "own-fences" };
    backend = createFirestoreBackend(db, { transport, ...collections, onLost: () => undefined });
  });
  afterAll(async () => {
    await backend.close();
    await db.terminate();
  });

  const effect = async (key: string): Promise<unknown> =>
    (await db.collection("effects").doc(key).get()).data();

  /** All that is stored as done. */
  const marks = async (key: string): Promise<unknown[]> => {
    const { docs } = await db.collection("own-fences").where("keyDebug", "==", key).get();
    return docs.map((document) => document.data()).filter((fields) => fields.due !== undefined);
  };

  /** Does it, and stores in the same transaction that it is done. */
  async function work({ key, done }: OnceHandle<FirestoreCapabilities>): Promise<void> {
    await db.runTransaction(async (tx) => {
      const document = db.collection("effects").doc(key);
      const { n = 0 } = ((await tx.get(document)).data() ?? {}) as { n?: number };
      await done(tx);
      tx.set(document, { n: n + 1 });
    });
  }

  /** Lets somebody else have the lock on a key. */
  async function overtake(key: string): Promise<void> {
    await db.collection("own-locks").doc(key).update({ expiresAtMs: 1 });
    expect(await backend.acquire({ key, ttlMs: 30_000 })).toMatchObject({ ok: true });
  }

  test("stores it with the transaction, and the release that follows changes nothing", async () => {
    const key = newKey();
    let stored: unknown[] = [];
    const run = await backend.once(key, { due: 42 }, async (handle) => {
      await work(handle);
      stored = await marks(key);
      expect(stored).toEqual([expect.objectContaining({ lockId: handle.lockId })]);
    });
    expect(run).toMatchObject({ ran: true });
    expect(await marks(key)).toEqual(stored);
    expect(await backend.isLocked({ key })).toBe(false);
    expect(await backend.once(key, { due: 42 }, work)).toMatchObject({ lastDue: "42" });
    expect(await effect(key)).toEqual({ n: 1 });
  });

  test("leaves the period open if the transaction fails", async () => {
    const key = newKey();
    const failed = backend.once(key, { due: 1 }, ({ done }) =>
      db.runTransaction(async (tx) => {
        await done(tx);
        throw new Error("changed my mind");
      }),
    );
    await expect(failed).rejects.toThrow("changed my mind");
    expect(await backend.once(key, { due: 1 }, work)).toMatchObject({ ran: true });
    expect(await effect(key)).toEqual({ n: 1 });
  });

  test("leaves it open if the function returns although the transaction failed", async () => {
    const key = newKey();
    const run = await backend.once(key, { due: 1 }, async ({ done }) => {
      const transaction = db.runTransaction(async (tx) => {
        await done(tx);
        throw new Error("card declined");
      });
      await transaction.catch(() => undefined);
    });
    expect(run).toMatchObject({ ran: true });
    expect([await marks(key), await backend.isLocked({ key })]).toEqual([[], false]);
    expect(await backend.once(key, { due: 1 }, work)).toMatchObject({ ran: true });
    expect(await effect(key)).toEqual({ n: 1 });
  });

  test("keeps it done if the function fails, or the lock is lost, after the commit", async () => {
    const key = newKey();
    const failed = backend.once(key, { due: 1 }, async (handle) => {
      await work(handle);
      throw new Error("too late");
    });
    await expect(failed).rejects.toThrow("too late");
    expect(await backend.once(key, { due: 1 }, work)).toMatchObject({ reason: "done" });
    for (const due of [2, 3]) {
      const run = await backend.once(key, { due }, async (handle) => {
        await work(handle);
        if (due === 2) await overtake(key);
        else await db.collection("own-locks").doc(key).update({ expiresAtMs: 1 });
      });
      expect(run).toMatchObject({ ran: true });
      await backend.forceRelease(key);
    }
    expect(await effect(key)).toEqual({ n: 3 });
  });

  test("refuses a stale holder, whose transaction writes nothing", async () => {
    const key = newKey();
    const stale = backend.once(key, { due: 1 }, async (handle) => {
      await overtake(key);
      await work(handle);
    });
    expect(await lockError(stale)).toHaveProperty("code", "LockLost");
    expect([await effect(key), await marks(key)]).toEqual([undefined, []]);
  });

  test("who is overtaken between it and the commit is asked again, and then refused", async () => {
    const key = newKey();
    let runs = 0;
    const stale = backend.once(key, { due: 1 }, ({ done }) =>
      db.runTransaction(async (tx) => {
        runs += 1;
        await done(tx);
        if (runs === 1) await overtake(key);
      }),
    );
    expect(await lockError(stale)).toHaveProperty("code", "LockLost");
    expect([runs, await marks(key)]).toEqual([2, []]);
  });
});
