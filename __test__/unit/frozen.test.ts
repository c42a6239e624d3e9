/** What users were given is never written into: Immer freezes it, and Jest puts accessors in the place of its members. */

import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { lock } from "syncguard/common";
import { Redlock } from "syncguard/redlock";
import { createSqliteBackend, type SqliteCapabilities } from "syncguard/sqlite";
import type { LockHandle } from "syncguard";
import { createTestBackend, TestClock } from "syncguard/testing";
import { temporaryFolder } from "../support/temp";
import { until } from "../support/until";

const KEY = "some:key";
const EXTENDING = { ttlMs: 30_000, autoExtend: true } as const;

/** What Jest makes of the members of what is left in `global`: whoever writes into one calls it without end. */
function wrapMembers(object: object): void {
  for (const name of Object.keys(object)) {
    const member = Object.getOwnPropertyDescriptor(object, name);
    const get = member?.get as (() => unknown) | undefined;
    Object.defineProperty(object, name, {
      get: get === undefined ? () => member?.value as unknown : get.bind(object),
      set: (written: unknown) => Reflect.set(object, name, written),
      enumerable: true,
      configurable: true,
    });
  }
}

const folder = temporaryFolder();
afterAll(folder.remove);

test.each([
  ["frozen", Object.freeze],
  ["wrapped", wrapMembers],
])("a %s handle is extended by timers, and by its holder", async (_, change) => {
  const clock = new TestClock(1_000_000);
  const backend = createTestBackend({ clock });
  const held = await backend.lock(KEY, EXTENDING);
  const set = await backend.lock([`${KEY}:1`, `${KEY}:2`], EXTENDING);
  change(held);
  change(set);
  await clock.advance(50_000);
  expect([held.signal.aborted, set.signal.aborted]).toEqual([false, false]);
  expect(held.expiresAtMs).toBeGreaterThan(clock.now());
  expect(set.expiresAtMs).toBeGreaterThan(clock.now());
  const extended = await held.extend(90_000);
  expect(extended).toEqual({ ok: true, expiresAtMs: held.expiresAtMs });
  expect({ ...held }.expiresAtMs).toBe(held.expiresAtMs);
  expect(await held.release()).toEqual({ ok: true });
  await set.release();
});

test("a frozen handle is extended by the core, and so is that of a callback", async () => {
  const backend = createSqliteBackend({ path: join(folder.path, "locks.db") });
  const options = { ttlMs: 30_000, autoExtend: { everyMs: 10 } } as const;
  const held = Object.freeze(await backend.lock(KEY, options));
  const before = held.expiresAtMs;
  await until(() => held.expiresAtMs > before);
  await lock(
    backend,
    async (handle: LockHandle<SqliteCapabilities>) => {
      const first = Object.freeze(handle).expiresAtMs;
      await until(() => handle.expiresAtMs > first);
      expect(await handle.extend(60_000)).toEqual({ ok: true, expiresAtMs: handle.expiresAtMs });
    },
    { key: `${KEY}:2`, ...options },
  );
  expect(await held.release()).toEqual({ ok: true });
  await backend.close();
});

test("a frozen lock of redlock is extended and released", async () => {
  const redlock = new Redlock([createTestBackend()]);
  const lock = Object.freeze(await redlock.acquire([KEY], 10_000));
  const next = Object.freeze(await lock.extend(20_000));
  expect(lock.expiration).toBe(0);
  expect(next.expiration).toBeGreaterThan(Date.now());
  await next.release();
  expect(next.expiration).toBe(0);
  await (await redlock.acquire([KEY], 10_000)).release();
});
