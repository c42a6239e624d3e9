/** Several locks, and slots: who waits for them, and how they are lost; the rest is in behavior/held-locks.test.ts. */

import { afterEach, describe, expect, test } from "vitest";
import type { OnLost, OnReleaseError, SyncGuardBackend } from "syncguard";
import { createSqliteBackend } from "syncguard/sqlite";
import { createTestBackend, TestClock } from "syncguard/testing";

/** Those on which nobody polls, and an attempt takes no time. */
const STORES: Readonly<Record<string, (onLost: OnLost) => SyncGuardBackend>> = {
  test: (onLost) => createTestBackend({ onLost }),
  sqlite: (onLost) => createSqliteBackend({ onLost }),
};

let backend: SyncGuardBackend;
const lost: Parameters<OnLost>[1][] = [];
afterEach(async () => {
  lost.length = 0;
  await backend.close();
});

describe.each(Object.entries(STORES))("on the store %s", (_, open) => {
  const start = (): void => {
    backend = open((_error, context) => lost.push(context));
  };
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
});

test("a time that is over ends all locks at once", async () => {
  const clock = new TestClock();
  backend = createTestBackend({ clock, onLost: (_, context) => lost.push(context) });
  const held = await backend.lock(["a", "b"], { ttlMs: 10_000 });
  const { signal } = held;
  await clock.advance(10_000);
  const [first, second] = held.lockIds as [string, string];
  const all = { keys: ["a", "b"], lockIds: [first, second] };
  const context = { key: "a", lockId: first, ...all };
  expect(signal.reason).toMatchObject({ code: "LockLost", context });
  const locks = [
    { key: "a", lockId: first },
    { key: "b", lockId: second },
  ];
  expect(lost).toEqual([{ key: "a", lockId: first, locks }]);
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

test("callbacks name the lock that is gone, and all of them", async () => {
  const clock = new TestClock();
  const failed: Parameters<OnReleaseError>[1][] = [];
  const faulty = createTestBackend({
    clock,
    onLost: (_, context) => lost.push(context),
    onReleaseError: (_, context) => failed.push(context),
  });
  backend = faulty;
  const held = await faulty.lock(["a", "b"], { autoExtend: true });
  const locks = held.locks.map(({ key, lockId }) => ({ key, lockId }));
  faulty.faults.steal("b", 600_000);
  await clock.advance(10_000);
  expect(lost).toEqual([{ ...locks[1], locks }]);
  await held.release();
  faulty.faults.failNext("release");
  const other = await faulty.lock(["c", "d"]);
  await other[Symbol.asyncDispose]();
  const others = other.locks.map(({ key, lockId }) => ({ key, lockId }));
  expect(failed).toEqual([{ ...others[0], locks: others, source: "disposal" }]);
});

describe("one of several that is released by its id", () => {
  const EXTENDING = { ttlMs: 3_000, autoExtend: { everyMs: 1_000 } };
  const start = () => {
    const clock = new TestClock();
    const stage = createTestBackend({ clock, onLost: (_, context) => lost.push(context) });
    backend = stage;
    return { clock, stage };
  };

  test.each([
    ["with heartbeats", EXTENDING],
    ["without", { ttlMs: 60_000 }],
  ])("leaves the others to their handle, %s", async (_, options) => {
    const { clock, stage } = start();
    const held = await stage.lock(["a", "b", "c"], options);
    const { signal } = held;
    for (const place of [0, 2]) {
      const lockId = held.lockIds[place] as string;
      expect(await stage.release({ lockId })).toEqual({ ok: true });
      await clock.advance(5_000);
      expect(await held.extend(options.ttlMs)).toMatchObject({ ok: true });
    }
    expect(await stage.isLocked({ key: "a" })).toBe(false);
    expect(await stage.isLocked({ key: "b" })).toBe(true);
    held.assertHeld();
    expect(signal.aborted).toBe(false);
    expect(await held.release()).toEqual({ ok: true });
    expect(await stage.isLocked({ key: "b" })).toBe(false);
    expect(lost).toEqual([]);
  });

  test("leaves a loss of the others to be noticed", async () => {
    const { clock, stage } = start();
    const held = await stage.lock(["a", "b", "c"], EXTENDING);
    await stage.release({ lockIds: held.lockIds.slice(0, 2) });
    stage.faults.steal("c", 600_000);
    await clock.advance(1_000);
    expect(held.signal.reason).toMatchObject({ code: "LockLost", context: { key: "c" } });
    expect(() => held.assertHeld()).toThrow("the store no longer has it");
  });

  test("was lost, and so all of them, if it is not there", async () => {
    const { stage } = start();
    const held = await stage.lock(["a", "b"], { ttlMs: 60_000 });
    stage.faults.steal("b");
    expect(await stage.release({ lockId: held.lockIds[1] as string })).toEqual({ ok: false });
    expect(lost).toMatchObject([{ key: "b" }]);
    expect(held.signal.aborted).toBe(true);
  });

  test("may be the last", async () => {
    const { clock, stage } = start();
    const held = await stage.lock(["a", "b"], EXTENDING);
    const { signal } = held;
    for (const lockId of held.lockIds) await stage.release({ lockId });
    await clock.advance(60_000);
    expect(await held.release()).toEqual({ ok: false });
    expect(signal.aborted).toBe(false);
    expect(() => held.assertHeld()).toThrow("it was released");
  });

  test("is known to others that are on their way", async () => {
    const { clock, stage } = start();
    const held = await stage.lock(["a", "b"], EXTENDING);
    stage.faults.delay(500, "extend");
    const extending = held.extend(3_000);
    await stage.release({ lockId: held.lockIds[1] as string });
    await clock.advance(500); // that one finds b gone
    await clock.advance(500);
    expect(await extending).toMatchObject({ ok: true });
    await clock.advance(20_000);
    expect(held.signal.aborted).toBe(false);
    expect(await held.release()).toEqual({ ok: true });
  });

  test("and what is extended for less than the others ends no sooner unnoticed", async () => {
    const { clock, stage } = start();
    const plain = await stage.lock(["a", "b"], { ttlMs: 60_000 });
    const { signal } = plain;
    await stage.extend({ lockId: plain.lockIds[1] as string, ttlMs: 5_000 });
    await clock.advance(4_999);
    plain.assertHeld();
    await clock.advance(1);
    expect(signal.aborted).toBe(true);
    const extending = await stage.lock(["c", "d"], EXTENDING);
    await stage.extend({ lockId: extending.lockIds[1] as string, ttlMs: 1_500 });
    await clock.advance(20_000);
    expect(extending.signal.aborted).toBe(false);
  });
});
