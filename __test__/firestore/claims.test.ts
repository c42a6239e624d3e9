/** Several keys at once, and slots, through a client of Google's that is driven itself: how often it calls, and what it leaves. */

import type { Firestore } from "@google-cloud/firestore";
import { beforeEach, expect, onTestFinished, test } from "vitest";
import { createFirestoreBackend } from "syncguard/firestore";
import { type Emulator, googleClient, startEmulator } from "../support/firestore";
import { type Backend, newKey } from "../support/suite";
import { until } from "../support/until";

const ttlMs = 30_000;

let emulator: Emulator;
let db: Firestore;
let backend: Backend;

beforeEach(async () => {
  emulator = await startEmulator();
  db = googleClient(emulator.host);
  backend = createFirestoreBackend(db, { transport: "client" });
  return async () => {
    await backend.close();
    await db.terminate();
    await emulator.stop();
  };
});

/** The calls since the last time. */
async function calls(): Promise<Record<string, number>> {
  const made = await emulator.calls();
  await emulator.resetCalls();
  return made;
}

test.each([
  [4, 1],
  [35, 2],
])("%i keys are taken, extended and released in two round trips", async (count, queries) => {
  const keys = Array.from({ length: count }, () => newKey()).sort();
  const held = await backend.lock(keys, { ttlMs });
  expect(held.locks.map(({ key }) => key)).toEqual(keys);
  expect(await calls()).toEqual({ BatchGetDocuments: 1, Commit: 1 });
  const other = await backend.acquire({ claims: [keys[2]!, newKey()], ttlMs });
  expect(other).toMatchObject({ ok: false, key: keys[2] });
  // In the background.
  await until(async () => "Rollback" in (await emulator.calls()));
  await calls();
  expect(await held.extend(60_000)).toMatchObject({ ok: true });
  expect(await held.release()).toEqual({ ok: true });
  // Of the queries of a transaction, the client sends the first alone.
  expect(await calls()).toEqual({ RunQuery: 2 * queries, Commit: 2 });
  for (const key of keys) expect(await backend.isLocked({ key })).toBe(false);
});

test("one that is gone keeps the others from being extended", async () => {
  const keys = [newKey(), newKey()].sort();
  const held = await backend.lock(keys, { ttlMs, onLost: () => undefined });
  await backend.release({ lockId: held.lockIds[1]! });
  expect(await backend.extend({ lockIds: held.lockIds, ttlMs: 60_000 })).toMatchObject({
    ok: false,
  });
  const left = await backend.lookup({ key: keys[0]! });
  expect(left?.expiresAtMs).toBe(held.expiresAtMs);
});

test("slots are given until none is free, and by their numbers", async () => {
  const key = `${newKey()}/part`;
  const numbers = new Set<number>();
  const held = [];
  for (let taken = 0; taken < 3; taken += 1) {
    const slot = await backend.lock({ key, slots: 3 }, { ttlMs });
    numbers.add(slot.slot);
    held.push(slot);
  }
  expect(numbers).toEqual(new Set([1, 2, 3]));
  await calls();
  const full = await backend.acquire({ claims: [{ key, slots: 3 }], ttlMs });
  expect(full).toMatchObject({ ok: false, key });
  expect(await calls()).toEqual({ RunQuery: 1 });
  // The native connection sees the same locks.
  const native = createFirestoreBackend(db, { transport: "native" });
  onTestFinished(() => native.close());
  expect(await native.acquire({ claims: [{ key, slots: 3 }], ttlMs })).toMatchObject({ ok: false });
  const [freed] = held;
  await freed!.release();
  await using again = await native.lock({ key, slots: 3 }, { ttlMs });
  expect(again.slot).toBe(freed!.slot);
  expect(again.fence > freed!.fence).toBe(true);
});
