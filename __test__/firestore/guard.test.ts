/** Locks that are checked in users' own transactions of Google's client. */

import type { Firestore } from "@google-cloud/firestore";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import type { HeldLock, LockError, SyncGuardBackend } from "syncguard";
import { createAutoLock } from "syncguard/common";
import {
  createFirestoreBackend,
  type FirestoreCapabilities,
  type FirestoreTransaction,
} from "syncguard/firestore";
import { lockError as anyLockError } from "../support/errors";
import { type Emulator, googleClient, newProject, startEmulator } from "../support/firestore";
import { newKey } from "../support/suite";

let emulator: Emulator;
beforeAll(async () => {
  emulator = await startEmulator();
});
afterAll(() => emulator.stop());

/** The LockError of that code that a promise is rejected with. */
async function lockError(promise: Promise<unknown>, code: string): Promise<LockError> {
  const error = await anyLockError(promise);
  expect(error.code).toBe(code);
  return error;
}

describe.each(["native", "client"] as const)("over the transport %s", (transport) => {
  let db: Firestore;
  let backend: SyncGuardBackend<FirestoreCapabilities>;
  beforeAll(() => {
    db = googleClient(emulator.host);
    const collection = "own-locks";
    backend = createFirestoreBackend(db, { transport, collection, onLost: () => undefined });
  });
  afterAll(async () => {
    await backend.close();
    await db.terminate();
  });

  /** Lets somebody else take a lock over. */
  async function overtake(held: HeldLock<FirestoreCapabilities>): Promise<void> {
    const document = db.collection("own-locks").doc(held.key);
    await document.update({ expiresAtMs: 1 });
    expect(await backend.acquire({ key: held.key, ttlMs: 30_000 })).toMatchObject({ ok: true });
  }

  const written = async (key: string): Promise<unknown> =>
    (await db.collection("sums").doc(key).get()).data();

  test("the holder of a lock commits, and gives it back", async () => {
    const held = await backend.lock(newKey());
    await db.runTransaction(async (tx) => {
      await held.guard(tx);
      tx.set(db.collection("sums").doc(held.key), { n: 1 });
    });
    expect(await written(held.key)).toEqual({ n: 1 });
    expect(await held.release()).toEqual({ ok: true });
  });

  test("a stale holder commits nothing, and hears of its loss", async () => {
    const held = await backend.lock(newKey());
    const { signal, key, lockId } = held;
    await overtake(held);
    const committed = db.runTransaction(async (tx) => {
      await held.guard(tx);
      tx.set(db.collection("sums").doc(key), { n: 1 });
    });
    const error = await lockError(committed, "LockLost");
    expect(error.context).toMatchObject({ key, lockId });
    expect(signal.reason).toBe(error);
    expect(await written(key)).toBeUndefined();
  });

  test("who is overtaken between the guard and the commit is asked again, and then refused", async () => {
    const held = await backend.lock(newKey());
    let runs = 0;
    const committed = db.runTransaction(async (tx) => {
      runs += 1;
      await held.guard(tx);
      if (runs === 1) await overtake(held);
      tx.set(db.collection("sums").doc(held.key), { n: 1 });
    });
    await lockError(committed, "LockLost");
    expect(runs).toBe(2);
    expect(await written(held.key)).toBeUndefined();
  });

  test("a lock whose time is over is not held, though nobody has taken it", async () => {
    const held = await backend.lock(newKey());
    const document = db.collection("own-locks").doc(held.key);
    const guard = (): Promise<unknown> => db.runTransaction((tx) => held.guard(tx));
    await document.update({ expiresAtMs: Date.now() - 500 });
    await guard();
    await document.update({ expiresAtMs: Date.now() - 1_000 });
    await lockError(guard(), "LockLost");
  });

  test("one guard is for all of several locks, and names the one that is gone", async () => {
    const held = await backend.lock([newKey(), `a/b:${newKey()}`, { key: newKey(), slots: 3 }]);
    const guard = (): Promise<unknown> => db.runTransaction((tx) => held.guard(tx));
    await guard();
    const gone = held.locks.find(({ slot }) => slot !== undefined) as (typeof held.locks)[number];
    const found = await db.collection("own-locks").where("lockId", "==", gone.lockId).get();
    await found.docs[0]?.ref.delete();
    const error = await lockError(guard(), "LockLost");
    expect(error.context).toMatchObject({ key: gone.key, lockId: gone.lockId });
  });

  test("a guard is for what is left of several locks", async () => {
    const held = await backend.lock([newKey(), newKey()]);
    await backend.release({ lockId: held.lockIds[0] as string });
    await db.runTransaction((tx) => held.guard(tx));
    expect(await held.release()).toEqual({ ok: true });
  });

  test("readers guard beside each other, until their key is freed by force", async () => {
    const key = `a/b:${newKey()}`;
    const [held, beside] = [
      await backend.lock(key, { mode: "shared" }),
      await backend.lock([{ key, mode: "shared" }, newKey(), { key: newKey(), slots: 3 }]),
    ];
    await db.runTransaction((tx) => beside.guard(tx));
    let runs = 0;
    const committed = db.runTransaction(async (tx) => {
      runs += 1;
      await held.guard(tx);
      if (runs === 1) expect(await backend.forceRelease(key)).toEqual({ ok: true });
      tx.set(db.collection("sums").doc("shared"), { n: 1 });
    });
    await lockError(committed, "LockLost");
    expect(runs).toBe(2);
    expect(await written("shared")).toBeUndefined();
    // Those who share it next are others.
    await using next = await backend.lock(key, { mode: "shared" });
    const stale = db.runTransaction((tx) => beside.guard(tx));
    expect((await lockError(stale, "LockLost")).context).toMatchObject({ key });
    await db.runTransaction((tx) => next.guard(tx));
  });

  test("the handle of a callback guards", async () => {
    await createAutoLock(backend)(({ guard }) => db.runTransaction((tx) => guard(tx)), {
      key: newKey(),
    });
  });

  test.each([
    ["nothing", (): unknown => undefined],
    ["the client", () => db],
    ["something else that reads", () => ({ get: () => undefined, getAll: () => undefined })],
  ])("%s is no transaction", async (_, make) => {
    const held = await backend.lock(newKey());
    const guarded = held.guard(make() as FirestoreTransaction);
    const error = await lockError(guarded, "InvalidArgument");
    expect(error.message).toContain("Transaction of @google-cloud/firestore");
    expect(held.signal.aborted).toBe(false);
  });

  test("a transaction of another database is refused", async () => {
    const other = googleClient(emulator.host, newProject());
    onTestFinished(() => other.terminate());
    const held = await backend.lock(newKey());
    const guarded = other.runTransaction((tx) => held.guard(tx));
    expect((await lockError(guarded, "InvalidArgument")).message).toContain("another database");
    expect(held.signal.aborted).toBe(false);
  });
});
