/** Several locks, and slots: who waits for them, and how they are lost; the rest is in behavior/held-locks.test.ts. */

import { afterEach, describe, expect, test } from "vitest";
import type { OnLost, SyncGuardBackend } from "syncguard";
import { createSqliteBackend } from "syncguard/sqlite";
import { createTestBackend, TestClock } from "syncguard/testing";

/** Those on which nobody polls, and an attempt takes no time. */
const STORES: Readonly<Record<string, (onLost: OnLost) => SyncGuardBackend>> = {
  test: (onLost) => createTestBackend({ onLost }),
  sqlite: (onLost) => createSqliteBackend({ onLost }),
};

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
