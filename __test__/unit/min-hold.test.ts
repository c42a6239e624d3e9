/** `minHoldMs`: a lock that is released early ends later. */

import { expect, onTestFinished, test } from "vitest";
import { lock, type LockEvent, withTelemetry } from "syncguard";
import { createSqliteBackend } from "syncguard/sqlite";
import { createTestBackend, TestClock } from "syncguard/testing";
import { lockError } from "../support/errors";
import { fakeBackend } from "../support/fake-backend";
import { until } from "../support/until";

const KEY = "job:nightly";
/** For which a lock counts as held after its end. */
const TOLERANCE_MS = 1_000;

function onTestClock() {
  const clock = new TestClock();
  const backend = createTestBackend({ clock });
  return { clock, backend, isHeld: () => backend.isLocked({ key: KEY }) };
}

test("is a whole number, and not longer than the lock", async () => {
  const { backend } = onTestClock();
  const wrong: [unknown, string][] = [
    [0, "minHoldMs must be a positive integer"],
    [-1, "minHoldMs must be a positive integer"],
    [1.5, "minHoldMs must be a positive integer"],
    ["1000", "minHoldMs must be a positive integer"],
    [10_001, "minHoldMs must not be longer than ttlMs"],
  ];
  for (const [given, message] of wrong) {
    const minHoldMs = given as number;
    for (const refused of [
      backend.lock(KEY, { ttlMs: 10_000, minHoldMs }),
      lock(backend, () => 1, { key: KEY, ttlMs: 10_000, minHoldMs }),
    ]) {
      expect(await lockError(refused)).toMatchObject({ code: "InvalidArgument", message });
    }
  }
  const held = await backend.lock(KEY, { ttlMs: 10_000, minHoldMs: null as never });
  expect(await held.release()).toEqual({ ok: true });
});

test("a release before it lets the lock end then, and no sooner", async () => {
  const { clock, backend, isHeld } = onTestClock();
  const held = await backend.lock(KEY, { ttlMs: 60_000, minHoldMs: 20_000 });
  await clock.advance(5_000);
  expect(await held.release()).toEqual({ ok: true });
  expect(await held.release()).toEqual({ ok: false });
  expect(await backend.lookup({ key: KEY })).toMatchObject({ expiresAtMs: clock.now() + 15_000 });
  await clock.advance(15_000 + TOLERANCE_MS - 1);
  expect(await isHeld()).toBe(true);
  await clock.advance(1);
  expect(await isHeld()).toBe(false);
  expect(held.signal.aborted).toBe(false);
});

test("a release after it frees the lock at once", async () => {
  const { clock, backend, isHeld } = onTestClock();
  const held = await backend.lock(KEY, { ttlMs: 60_000, minHoldMs: 20_000 });
  await clock.advance(20_000);
  expect(await held.release()).toEqual({ ok: true });
  expect(await isHeld()).toBe(false);
});

test("holds for lock(), for its function's errors, and at the end of a block", async () => {
  const { clock, backend, isHeld } = onTestClock();
  const failure = new Error("the job has failed");
  const options = { ttlMs: 60_000, minHoldMs: 20_000 };
  const failing = lock(backend, () => Promise.reject(failure), { key: KEY, ...options });
  await expect(failing).rejects.toBe(failure);
  expect(await isHeld()).toBe(true);
  await clock.advance(20_000 + TOLERANCE_MS);
  expect(await isHeld()).toBe(false);
  {
    await using held = await backend.lock(KEY, options);
    expect(held.ok).toBe(true);
  }
  expect(await isHeld()).toBe(true);
});

test("no heartbeat makes the lock longer again", async () => {
  const { clock, backend, isHeld } = onTestClock();
  const options = { ttlMs: 30_000, minHoldMs: 12_000, autoExtend: true };
  const held = await backend.lock(KEY, options);
  await clock.advance(10_000); // a heartbeat, whose lock would end at 40 s
  expect(held.expiresAtMs).toBe(clock.now() + 30_000);
  expect(await held.release()).toEqual({ ok: true });
  await clock.advance(2_000 + TOLERANCE_MS);
  expect(await isHeld()).toBe(false);
  await clock.advance(60_000);
  expect(await isHeld()).toBe(false);
});

test("a lock that is lost is not held for longer", async () => {
  const { clock, backend } = onTestClock();
  const held = await backend.lock(KEY, { ttlMs: 60_000, minHoldMs: 20_000, onLost: () => 1 });
  backend.faults.steal(KEY, 5_000);
  expect(await held.release()).toEqual({ ok: false });
  // The thief's lock is as long as it was.
  expect(await backend.lookup({ key: KEY })).toMatchObject({ expiresAtMs: clock.now() + 5_000 });
});

test("releaseAll() leaves a lock alone that was released early, and frees one that is still held", async () => {
  const { backend } = onTestClock();
  const options = { ttlMs: 60_000, minHoldMs: 20_000 };
  const early = await backend.lock("early", options);
  await backend.lock("held", options);
  await early.release();
  expect(await backend.releaseAll()).toEqual({ released: 1, gone: 0, failed: [] });
  expect(await backend.isLocked({ key: "early" })).toBe(true);
  expect(await backend.isLocked({ key: "held" })).toBe(false);
});

test("holds for several keys and for slots", async () => {
  const { clock, backend } = onTestClock();
  const options = { ttlMs: 60_000, minHoldMs: 20_000 };
  const held = [
    await backend.lock(["a", "b"], options),
    await backend.lock({ key: "c", slots: 1 }, options),
  ];
  for (const each of held) expect(await each.release()).toEqual({ ok: true });
  const attempt = await backend.acquire({ claims: [{ key: "c", slots: 1 }], ttlMs: 5 });
  expect([await backend.isLocked({ key: "b" }), attempt.ok]).toEqual([true, false]);
  await clock.advance(20_000 + TOLERANCE_MS);
  expect(await backend.isLocked({ key: "b" })).toBe(false);
});

test("an error of the store is one of the release, and the lock ends with its TTL", async () => {
  const { clock, backend, isHeld } = onTestClock();
  const held = await backend.lock(KEY, { ttlMs: 60_000, minHoldMs: 20_000 });
  backend.faults.failNext("release");
  expect((await lockError(held.release())).code).toBe("ServiceUnavailable");
  await clock.advance(60_000 + TOLERANCE_MS - 1);
  expect(await isHeld()).toBe(true);
  await clock.advance(1);
  expect(await isHeld()).toBe(false);
});

test("telemetry hears of the release, and for how long the lock was worked under", async () => {
  const { clock, backend } = onTestClock();
  const events: LockEvent[] = [];
  const observed = withTelemetry(backend, { onEvent: (event) => events.push(event) });
  const held = await observed.lock(KEY, { ttlMs: 60_000, minHoldMs: 20_000 });
  await clock.advance(5_000);
  await held.release();
  await clock.advance(0);
  expect(events).toMatchObject([
    { type: "acquire", result: "ok" },
    { type: "release", result: "ok", heldMs: 5_000 },
  ]);
});

test("works on a backend of users' own", async () => {
  const ends: number[] = [];
  const mine = fakeBackend({
    extend: async ({ ttlMs }) => {
      ends.push(ttlMs);
      return { ok: true, expiresAtMs: Date.now() + ttlMs };
    },
  });
  await lock(mine, () => 1, { key: KEY, ttlMs: 60_000, minHoldMs: 20_000 });
  expect(ends).toHaveLength(1);
  expect(ends[0]).toBeGreaterThan(19_000);
  expect(ends[0]).toBeLessThanOrEqual(20_000);
  expect(mine.released).toEqual([]);
});

test("a heartbeat that is under way does not make the lock longer again", async () => {
  const { clock, backend, isHeld } = onTestClock();
  const options = { ttlMs: 30_000, minHoldMs: 12_000, autoExtend: true };
  const held = await backend.lock(KEY, options);
  backend.faults.delay(500, "extend");
  await clock.advance(10_100);
  const released = held.release();
  await clock.advance(500);
  expect(await released).toEqual({ ok: true });
  expect(await backend.lookup({ key: KEY })).toMatchObject({ expiresAtMs: clock.now() + 1_400 });
  await clock.advance(1_400 + TOLERANCE_MS);
  expect(await isHeld()).toBe(false);
});

test("ends the heartbeats of the core also where a copy of its backend releases", async () => {
  const backend = createSqliteBackend();
  onTestFinished(backend.close);
  const config = { key: KEY, ttlMs: 1_500, minHoldMs: 500, autoExtend: true };
  await lock({ ...backend }, () => 1, config);
  expect(await backend.isLocked({ key: KEY })).toBe(true);
  await until(async () => !(await backend.isLocked({ key: KEY })));
});
