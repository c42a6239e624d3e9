// Many operations at once: they cross between the threads in batches.

import { hostname } from "node:os";
import { afterEach, beforeEach, expect, test } from "vitest";
import { getByKeyRaw, type SyncGuardBackend } from "syncguard";
import { createSqliteBackend, type SqliteCapabilities } from "syncguard/sqlite";
import { lockError } from "../support/errors";

let backend: SyncGuardBackend<SqliteCapabilities>;
beforeEach(() => {
  backend = createSqliteBackend();
});
afterEach(() => backend.close());

const numbers = (count: number) => Array.from({ length: count }, (_, index) => index);
const acquire = (key: string, owner?: string) => backend.acquire({ key, ttlMs: 60_000, owner });

test.each([5, 16, 64, 300, 1_000])("%i at once are all carried out", async (count) => {
  for (let round = 0; round < 5; round += 1) {
    const results = await Promise.all(numbers(count).map((index) => acquire(`key:${index}`)));
    const ids = new Set(results.map((result) => (result.ok ? result.lockId : undefined)));
    expect(ids.size).toBe(count);
    expect(ids).not.toContain(undefined);
    const released = await Promise.all(
      results.map(async (result) => (result.ok ? await result.release() : undefined)),
    );
    expect(released).toEqual(released.map(() => ({ ok: true })));
    // A lone one after many waits for nobody.
    expect(await backend.isLocked({ key: "key:0" })).toBe(false);
  }
});

test("each gets its own answer, whatever characters are in it", async () => {
  const keys = numbers(300).map(
    (index) => `${["plain", "ünïcödé", "💳💳", "鍵"][index % 4]}:${index}`,
  );
  const owners = keys.map((key, index) => (index % 3 === 0 ? undefined : `owner of ${key} 🔒`));
  const ofProcess = `${hostname().slice(0, 80)}:${process.pid}`;
  const held = await Promise.all(keys.map((key, index) => acquire(key, owners[index])));
  const infos = await Promise.all(keys.map((key) => getByKeyRaw(backend, key)));
  for (const [index, info] of infos.entries()) {
    const result = held[index];
    if (!result?.ok) throw new Error("nobody else can hold this lock");
    expect(info).toMatchObject({
      key: keys[index],
      lockId: result.lockId,
      fence: result.fence,
      expiresAtMs: result.expiresAtMs,
    });
    expect(info?.owner).toBe(owners[index] ?? ofProcess);
  }
});

test("bad input among them fails alone", async () => {
  const results = await Promise.allSettled(
    numbers(200).map((index) => acquire(index % 2 === 0 ? `key:${index}` : "ü".repeat(257))),
  );
  for (const [index, result] of results.entries()) {
    expect(result.status).toBe(index % 2 === 0 ? "fulfilled" : "rejected");
  }
  const failure = await lockError(acquire("ü".repeat(257)));
  expect(failure.code).toBe("InvalidArgument");
  expect(failure.message).toContain("512 bytes");
});

test("operations that start together need nothing that users' tests replace", async () => {
  const { nextTick } = process;
  const { setImmediate, setTimeout, queueMicrotask } = globalThis;
  const never = () => undefined;
  let results: Promise<boolean[]>;
  try {
    process.nextTick = never;
    Object.assign(globalThis, { setImmediate: never, setTimeout: never, queueMicrotask: never });
    const keys = Array.from({ length: 20 }, (_, index) => `key:${index}`);
    results = Promise.all(
      keys.map(async (key) => (await backend.acquire({ key, ttlMs: 5_000 })).ok),
    );
  } finally {
    process.nextTick = nextTick;
    Object.assign(globalThis, { setImmediate, setTimeout, queueMicrotask });
  }
  expect(await results).toEqual(Array.from({ length: 20 }, () => true));
});
