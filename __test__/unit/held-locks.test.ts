/** Several locks that were granted together, and slots: what their handles show and do. */

import { afterEach, describe, expect, test } from "vitest";
import {
  getByKeyRaw,
  type HeldLocks,
  type HeldSlot,
  lock,
  type OnLost,
  type SyncGuardBackend,
} from "syncguard";
import { createSqliteBackend } from "syncguard/sqlite";
import { createTestBackend, TestClock } from "syncguard/testing";
import { lockError } from "../support/errors";
import { until } from "../support/until";

/** What every store of this package does. */
const STORES: Readonly<Record<string, (onLost: OnLost) => SyncGuardBackend>> = {
  test: (onLost) => createTestBackend({ onLost }),
  sqlite: (onLost) => createSqliteBackend({ onLost }),
};

const ttlMs = 60_000;
const ONCE = { acquisition: { maxRetries: 0 } };
let backend: SyncGuardBackend;
const lost: { key: string; lockId: string }[] = [];
afterEach(async () => {
  lost.length = 0;
  await backend.close();
});

describe.each(Object.entries(STORES))("on the store %s", (_, open) => {
  const start = (): void => {
    backend = open((_error, context) => lost.push(context));
  };
  const isFree = async (...keys: string[]): Promise<boolean> =>
    !(await Promise.all(keys.map((key) => backend.isLocked({ key })))).includes(true);

  test("several keys: each has a lock of its own, with its lock id and fence", async () => {
    start();
    const before = await backend.lock("account:2");
    await before.release();
    const held = await backend.lock(["account:2", "account:1"], { ttlMs, owner: "transfer-7" });
    expect(held.ok).toBe(true);
    expect(held.locks.map(({ key }) => key)).toEqual(["account:1", "account:2"]);
    expect(held.lockIds).toEqual(held.locks.map(({ lockId }) => lockId));
    expect(new Set(held.lockIds).size).toBe(2);
    expect([...held.fences]).toEqual(held.locks.map(({ key, fence }) => [key, fence]));
    expect(held.fences.get("account:2")! > before.fence).toBe(true);
    expect(held).not.toHaveProperty("lockId");
    expect(held).not.toHaveProperty("fence");
    for (const { key, lockId, fence } of held.locks) {
      expect(await getByKeyRaw(backend, key)).toMatchObject({
        ...{ key, lockId, fence, owner: "transfer-7" },
        expiresAtMs: held.expiresAtMs,
      });
    }
    expect(await held.release()).toEqual({ ok: true });
    expect(await isFree("account:1", "account:2")).toBe(true);
  });

  test("keys are shown as they were given, and locked in NFC", async () => {
    start();
    const held = await backend.lock(["cafe\u0301", "b"]);
    expect(held.locks.map(({ key }) => key)).toEqual(["b", "cafe\u0301"]);
    expect(held.fences.has("cafe\u0301")).toBe(true);
    expect(await backend.isLocked({ key: "caf\u00e9" })).toBe(true);
    await held.release();
  });

  test("one key in a list is a list of one", async () => {
    start();
    const held = await backend.lock(["a"]);
    expect(held.locks).toHaveLength(1);
    expect(await held.extend(ttlMs)).toMatchObject({ ok: true });
    expect(await held.release()).toEqual({ ok: true });
    expect(await isFree("a")).toBe(true);
  });

  test("all or nothing: what is held by others leaves the others free", async () => {
    start();
    const other = await backend.lock("b");
    const attempt = await backend.acquire({ claims: ["a", "b", "c"], ttlMs });
    expect(attempt).toMatchObject({ ok: false, reason: "locked", key: "b" });
    expect(await attempt.release()).toEqual({ ok: false });
    expect(await isFree("a", "c")).toBe(true);
    await other.release();
    const again = await backend.acquire({ claims: ["a", "b", "c"], ttlMs });
    expect(again).toMatchObject({ ok: true });
    await again.release();
  });

  test("acquire(), release() and extend() by lock ids", async () => {
    start();
    const held = await backend.acquire({ claims: ["a", "b"], ttlMs });
    if (!held.ok) throw new Error("nobody else is there");
    const { lockIds } = held;
    const extended = await backend.extend({ lockIds, ttlMs: 2 * ttlMs });
    if (!extended.ok) throw new Error("both are held");
    for (const lockId of lockIds) {
      expect(await backend.lookup({ lockId })).toMatchObject({ expiresAtMs: extended.expiresAtMs });
    }
    // One of them is gone: none is extended, and the other one is released.
    await backend.forceRelease("a");
    expect(await backend.extend({ lockIds, ttlMs: 3 * ttlMs })).toEqual({ ok: false });
    expect(await backend.lookup({ key: "b" })).toMatchObject({ expiresAtMs: extended.expiresAtMs });
    expect(await backend.release({ lockIds })).toEqual({ ok: false });
    expect(await isFree("a", "b")).toBe(true);
    expect(await backend.release({ lockIds })).toEqual({ ok: false });
  });

  test("an extension is for all, and the handle shows until when", async () => {
    start();
    const held = await backend.lock(["a", "b"], { ttlMs });
    const before = held.expiresAtMs;
    const result = await held.extend(2 * ttlMs);
    expect(result).toEqual({ ok: true, expiresAtMs: held.expiresAtMs });
    expect(held.expiresAtMs).toBeGreaterThan(before + ttlMs / 2);
    for (const key of ["a", "b"]) {
      expect(await backend.lookup({ key })).toMatchObject({ expiresAtMs: held.expiresAtMs });
    }
    await held.release();
  });

  test("an extension that finds one gone names it, and so does the signal", async () => {
    start();
    const held = await backend.lock(["a", "b", "c"], { ttlMs });
    const { signal } = held;
    await backend.forceRelease("b");
    expect(await held.extend(ttlMs)).toEqual({ ok: false });
    const context = { key: "b", lockId: held.locks[1]?.lockId };
    expect(signal.reason).toMatchObject({ code: "LockLost", context });
    expect(await held.extend(ttlMs)).toEqual({ ok: false });
    expect(await held.release()).toEqual({ ok: false });
    expect(await isFree("a", "c")).toBe(true);
    expect(lost).toHaveLength(1);
  });

  test("a release that finds one gone frees the others, and names it", async () => {
    start();
    const held = await backend.lock(["a", "b", "c"], { ttlMs });
    const { signal } = held;
    await backend.forceRelease("c");
    expect(await held.release()).toEqual({ ok: false });
    expect(signal.reason).toMatchObject({ code: "LockLost", context: { key: "c" } });
    expect(await isFree("a", "b")).toBe(true);
  });

  test("a heartbeat that finds one gone ends all", async () => {
    start();
    const held = await backend.lock(["a", "b"], {
      ttlMs: 5_000,
      autoExtend: { everyMs: 20 },
    });
    const before = held.expiresAtMs;
    await until(() => held.expiresAtMs > before);
    await backend.forceRelease("b");
    await until(() => held.signal.aborted);
    const context = { key: "b", lockId: held.locks[1]?.lockId };
    expect(held.signal.reason).toMatchObject({ code: "LockLost", context });
    expect(await held.release()).toEqual({ ok: false });
    expect(await isFree("a", "b")).toBe(true);
  });

  test("are released at most once, and by the end of a block", async () => {
    start();
    const held = await backend.lock(["a", "b"]);
    expect(await Promise.all([held.release(), held.release()])).toEqual([
      { ok: true },
      { ok: false },
    ]);
    {
      await using inner = await backend.lock(["a", "b"]);
      expect(inner.locks).toHaveLength(2);
      expect(await isFree("a")).toBe(false);
    }
    expect(await isFree("a", "b")).toBe(true);
  });

  test("what is spread of a handle has all of it", async () => {
    start();
    const { release, extend, ...members } = { ...(await backend.lock(["a", "b"])) };
    expect(members.signal.aborted).toBe(false);
    expect(members.fences.get("a")).toBe(members.locks[0]?.fence);
    expect(await extend(ttlMs)).toMatchObject({ ok: true });
    expect(await release()).toEqual({ ok: true });
    const slot = { ...(await backend.lock({ key: "a", slots: 2 })) };
    expect(slot.slot).toBeGreaterThan(0);
    expect(slot.signal.aborted).toBe(false);
    expect(await slot.release()).toEqual({ ok: true });
  });

  test("options of a disposal apply to several locks", async () => {
    start();
    const held = await backend.lock(["a", "b"], { disposeTimeoutMs: 1_000 });
    expect(held.locks).toHaveLength(2);
    expect(held.signal.aborted).toBe(false);
    await held[Symbol.asyncDispose]();
    expect(await isFree("a", "b")).toBe(true);
  });

  test("slots: as many as asked for, each with its number and its fence", async () => {
    start();
    const claim = { key: "api", slots: 3 } as const;
    const held = await Promise.all([1, 2, 3].map(() => backend.lock(claim, { ttlMs })));
    expect(held.map(({ slot }) => slot).sort()).toEqual([1, 2, 3]);
    expect(new Set(held.map(({ lockId }) => lockId)).size).toBe(3);
    expect(held.map(({ key }) => key)).toEqual(["api", "api", "api"]);
    const full = await backend.acquire({ claims: [claim], ttlMs });
    expect(full).toMatchObject({ ok: false, reason: "locked", key: "api" });
    // The lock on the key is another one.
    const own = await backend.lock("api");
    const [first, ...others] = held as [HeldSlot, ...HeldSlot[]];
    await first.release();
    const next = await backend.lock(claim, { ttlMs });
    expect(next.slot).toBe(first.slot);
    expect(next.fence > first.fence).toBe(true);
    expect(await next.extend(ttlMs)).toMatchObject({ ok: true });
    for (const each of [next, own, ...others]) expect(await each.release()).toEqual({ ok: true });
  });

  test("a limit is that of whoever asks", async () => {
    start();
    const two = { key: "api", slots: 2 } as const;
    const held = await Promise.all([backend.lock(two), backend.lock(two)]);
    expect(await lockError(backend.lock(two, ONCE))).toHaveProperty("code", "AcquisitionTimeout");
    const third = await backend.lock({ key: "api", slots: 3 }, ONCE);
    expect(third.slot).toBe(3);
    for (const each of [third, ...held]) await each.release();
  });

  test("take: k or none", async () => {
    start();
    const held = await backend.lock({ key: "api", slots: 5, take: 3 });
    expect(new Set(held.locks.map(({ slot }) => slot)).size).toBe(3);
    expect(held.locks.map(({ key }) => key)).toEqual(["api", "api", "api"]);
    expect([...held.fences.keys()]).toEqual(["api"]);
    const claims = [{ key: "api", slots: 5, take: 3 }, "order:7"];
    expect(await backend.acquire({ claims, ttlMs })).toMatchObject({ ok: false, key: "api" });
    const rest = await backend.lock(["order:7", { key: "api", slots: 5, take: 2 }], ONCE);
    expect(rest.locks.map(({ key }) => key)).toEqual(["api", "api", "order:7"]);
    const all = [...held.locks, ...rest.locks].flatMap(({ slot }) => slot ?? []);
    expect(all.sort()).toEqual([1, 2, 3, 4, 5]);
    await rest.release();
    expect(await isFree("order:7")).toBe(true);
    await held.release();
    const five = await backend.lock({ key: "api", slots: 5, take: 5 }, ONCE);
    await five.release();
  });

  test("take: 1 gives a list of one", async () => {
    start();
    const held: HeldLocks = await backend.lock({ key: "api", slots: 5, take: 1 });
    expect(held.locks).toMatchObject([{ key: "api", slot: expect.any(Number) as number }]);
    await held.release();
  });

  test("whoever waits for several waits for the one in the way", async () => {
    start();
    const patience = { acquisition: { retryDelayMs: 50_000, timeoutMs: 60_000 } };
    const other = await backend.lock("b");
    const order: string[] = [];
    const waiting = backend.lock(["a", "b"], patience).then((held) => {
      order.push("several");
      return held;
    });
    await new Promise((resolve) => setImmediate(resolve));
    await other.release();
    const held = await waiting;
    // Who comes later, for one of them, waits behind.
    const behind = backend.lock("a", patience).then((one) => {
      order.push("one");
      return one;
    });
    await new Promise((resolve) => setImmediate(resolve));
    expect(order).toEqual(["several"]);
    await held.release();
    await (await behind).release();
  });

  test("whoever waits for a slot hears of any that is freed", async () => {
    start();
    const patience = { acquisition: { retryDelayMs: 50_000, timeoutMs: 60_000 } };
    const claim = { key: "api", slots: 2 } as const;
    const [first, second] = [await backend.lock(claim), await backend.lock(claim)];
    const waiting = [backend.lock(claim, patience), backend.lock(claim, patience)];
    await new Promise((resolve) => setImmediate(resolve));
    await second.release();
    const third = await Promise.race(waiting);
    expect(third.slot).toBe(second.slot);
    await first.release();
    for (const each of await Promise.all(waiting)) await each.release();
  });

  test("lock() gives its function the locks, and frees them", async () => {
    start();
    const fences = await lock(
      backend,
      async ({ fences: given, lockIds, extend, signal, locks }) => {
        expect(locks.map(({ key }) => key)).toEqual(["a", "b"]);
        expect(await extend(ttlMs)).toMatchObject({ ok: true });
        expect(signal.aborted).toBe(false);
        expect(await backend.lookup({ lockId: lockIds[1] as string })).not.toBeNull();
        return given;
      },
      { key: ["a", "b"], ttlMs },
    );
    expect([...fences.keys()]).toEqual(["a", "b"]);
    const slot = await lock(
      backend,
      ({ slot: number, fence, key }) => {
        expect([typeof fence, key]).toEqual(["string", "api"]);
        return number;
      },
      { key: { key: "api", slots: 5 } },
    );
    expect(slot).toBeGreaterThan(0);
    expect(await isFree("a", "b")).toBe(true);
  });

  test("releaseAll() gives all of them back", async () => {
    start();
    const held = await backend.lock(["a", "b"], { autoExtend: true });
    await backend.lock({ key: "api", slots: 2, take: 2 });
    const { signal } = held;
    expect(await backend.releaseAll()).toEqual({ released: 2, gone: 0, failed: [] });
    expect(signal.reason).toMatchObject({ code: "LockLost" });
    expect(await isFree("a", "b")).toBe(true);
    expect(lost).toHaveLength(2);
  });

  test("errors of an acquisition name what was asked for", async () => {
    start();
    const other = await backend.lock("b");
    const error = await lockError(backend.lock(["a", "b"], ONCE));
    expect(error).toMatchObject({ code: "AcquisitionTimeout", context: { key: "a, b" } });
    expect(error.message).not.toContain("a, b");
    await other.release();
  });
});

test("a time that is over ends all locks at once", async () => {
  const clock = new TestClock();
  backend = createTestBackend({ clock, onLost: (_, context) => lost.push(context) });
  const held = await backend.lock(["a", "b"], { ttlMs: 10_000 });
  const { signal } = held;
  await clock.advance(10_000);
  expect(signal.reason).toMatchObject({ code: "LockLost", context: { key: "a, b" } });
  expect(lost).toEqual([{ key: "a, b", lockId: held.lockIds.join() }]);
});

test("faults take one of several away", async () => {
  const clock = new TestClock();
  const faulty = createTestBackend({ clock, onLost: () => undefined });
  backend = faulty;
  const stolen = await faulty.lock(["a", "b"], { autoExtend: true });
  faulty.faults.steal("b", 600_000);
  await clock.advance(10_000);
  expect(stolen.signal.reason).toMatchObject({ code: "LockLost", context: { key: "b" } });
  expect(await stolen.release()).toEqual({ ok: false });
  const one = await faulty.lock(["c", "d"], { autoExtend: true });
  expect(faulty.faults.lose("d")).toBe(true);
  expect(one.signal.reason).toMatchObject({ code: "LockLost", context: { key: "d" } });
});
