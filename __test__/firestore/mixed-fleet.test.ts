/** Processes on the TypeScript library and on this one share one database. */

import type { Firestore } from "@google-cloud/firestore";
import { afterAll, beforeAll, expect, test } from "vitest";
import { getByKeyRaw } from "syncguard";
import { createFirestoreBackend } from "syncguard/firestore";
import { run } from "../support/child";
import { anyEmulator, type Emulator, googleClient, newProject } from "../support/firestore";
import { newKey, take } from "../support/suite";
import { until } from "../support/until";
// @ts-expect-error a program of its own, in plain JavaScript
import { typescriptLibrary } from "./fixtures/typescript-library.mjs";

type Library = {
  acquire: (opts: {
    key: string;
    ttlMs: number;
  }) => Promise<{ ok: boolean; lockId: string; fence: string; expiresAtMs: number }>;
  release: (opts: { lockId: string }) => Promise<{ ok: boolean }>;
  extend: (opts: { lockId: string; ttlMs: number }) => Promise<{ ok: boolean }>;
  read: (opts: { key: string }) => Promise<Record<string, unknown> | null>;
};
type Report = { granted: number; byTheOther: number; wrong: string[] };

const projectId = newProject();
let emulator: Pick<Emulator, "host" | "stop">;
let db: Firestore;
let theirs: Library;
beforeAll(async () => {
  emulator = await anyEmulator();
  db = googleClient(emulator.host, projectId);
  theirs = (typescriptLibrary as (db: Firestore) => Library)(db);
});
afterAll(async () => {
  await db.terminate();
  await emulator.stop();
});

test("four processes of both kinds exclude each other", { timeout: 180_000 }, async () => {
  const rounds = 40;
  const fleet = ["ours", "theirs", "ours", "theirs"].map((mainly) =>
    run("node", "../../firestore/fixtures/fleet.mjs", [
      emulator.host,
      projectId,
      mainly,
      String(rounds),
    ]),
  );
  const reports: Report[] = [];
  for (const { code, stdout, stderr } of await Promise.all(fleet)) {
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    reports.push(JSON.parse(stdout) as Report);
  }
  expect(reports.flatMap(({ wrong }) => wrong)).toEqual([]);
  for (const { granted, byTheOther } of reports) {
    expect(granted).toBe(rounds);
    expect(byTheOther).toBeGreaterThan(3);
  }
  const granted = await db.collection("granted").get();
  expect(granted.size).toBe(4 * rounds);
  const fences = new Map<string, number[]>();
  // In the order in which they were granted: each was written down by its holder.
  const inOrder = granted.docs.sort((a, b) => a.createTime.valueOf().localeCompare(b.createTime.valueOf())); // prettier-ignore
  for (const doc of inOrder) {
    const { key, fence } = doc.data() as { key: string; fence: string };
    fences.set(key, [...(fences.get(key) ?? []), Number(fence)]);
  }
  expect(fences.size).toBe(3);
  for (const given of fences.values()) {
    // Each fence was given once, and none was skipped.
    expect(given).toEqual(given.map((_, index) => index + 1));
  }
});

test("what they store is read, extended and released, and the other way round", async () => {
  const backend = createFirestoreBackend(db);
  for (let round = 0; round < 5; round += 1) {
    const key = newKey();
    const held = await theirs.acquire({ key, ttlMs: 5_000 });
    expect(await backend.acquire({ key, ttlMs: 5_000 })).toMatchObject({ ok: false });
    expect(await getByKeyRaw(backend, key)).toMatchObject({
      key,
      lockId: held.lockId,
      fence: held.fence,
      expiresAtMs: held.expiresAtMs,
    });
    const extended = await backend.extend({ lockId: held.lockId, ttlMs: 60_000 });
    expect(await theirs.read({ key })).toEqual({
      key,
      lockId: held.lockId,
      fence: held.fence,
      acquiredAtMs: held.expiresAtMs - 5_000,
      expiresAtMs: extended.ok && extended.expiresAtMs,
    });
    expect(await backend.release({ lockId: held.lockId })).toEqual({ ok: true });
    expect(await theirs.read({ key })).toBeNull();

    const own = await take(backend, key);
    expect(own.fence).toBe("000000000000002");
    expect(await theirs.acquire({ key, ttlMs: 5_000 })).toMatchObject({ ok: false });
    expect(await theirs.extend({ lockId: own.lockId, ttlMs: 60_000 })).toMatchObject({ ok: true });
    expect(await theirs.release({ lockId: own.lockId })).toEqual({ ok: true });
    expect(await own.release()).toEqual({ ok: false });
  }
  await backend.close();
});

test("a lock counts for as long on both sides", async () => {
  const backend = createFirestoreBackend(db);
  const key = newKey();
  const held = await take(backend, key, 100);
  await until(() => Date.now() > held.expiresAtMs);
  // Within the tolerance it is still held, by the word of either.
  expect(await backend.isLocked({ key })).toBe(true);
  expect(await theirs.acquire({ key, ttlMs: 5_000 })).toMatchObject({ ok: false });
  await until(async () => !(await backend.isLocked({ key })));
  expect(await theirs.acquire({ key, ttlMs: 5_000 })).toMatchObject({
    ok: true,
    fence: "000000000000002",
  });
  await backend.close();
});
