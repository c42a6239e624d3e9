/** What handles of several locks, and of slots, show and do, on every store. */

import { expect, test } from "vitest";
import { getByKeyRaw, type HeldLocks, type HeldSlot, lock, type OnLost } from "syncguard";
import { lockError } from "../support/errors";
import { type Backend, newKey, onEveryStore } from "../support/suite";
import { until } from "../support/until";

const ttlMs = 60_000;
const ONCE = { acquisition: { maxRetries: 0 } };

onEveryStore("handles of several locks", (connect, name) => {
  let opened: Backend | undefined;
  let backend: Backend;
  let lost: string[];
  let prefix: string;
  /** A key of this test. */
  const k = (text: string): string => `${prefix}:${text}`;
  const onLost: OnLost = (_, { key }) => lost.push(key);
  const start = (): void => {
    lost = [];
    prefix = newKey();
    backend = opened ??= connect({ onLost });
  };
  /** Where keys are in several slots of a cluster, a set is not one step. */
  const isOneStep = !name.startsWith("Redis Cluster");
  const isFree = async (...keys: string[]): Promise<boolean> =>
    !(await Promise.all(keys.map((key) => backend.isLocked({ key })))).includes(true);

  test("several keys: each has a lock of its own, with its lock id and fence", async () => {
    start();
    const before = await backend.lock(k("account:2"));
    await before.release();
    const held = await backend.lock([k("account:2"), k("account:1")], {
      ttlMs,
      owner: "transfer-7",
    });
    expect(held.ok).toBe(true);
    expect(held.locks.map(({ key }) => key)).toEqual([k("account:1"), k("account:2")]);
    expect(held.lockIds).toEqual(held.locks.map(({ lockId }) => lockId));
    expect(new Set(held.lockIds).size).toBe(2);
    expect([...held.fences]).toEqual(held.locks.map(({ key, fence }) => [key, fence]));
    expect(held.fences.get(k("account:2"))! > before.fence).toBe(true);
    expect(held).not.toHaveProperty("lockId");
    expect(held).not.toHaveProperty("fence");
    for (const { key, lockId, fence } of held.locks) {
      const found = await getByKeyRaw(backend, key);
      expect(found).toMatchObject({ key, lockId, fence, owner: "transfer-7" });
      if (isOneStep) expect(found?.expiresAtMs).toBe(held.expiresAtMs);
      else expect(found?.expiresAtMs).toBeGreaterThanOrEqual(held.expiresAtMs);
    }
    expect(await held.release()).toEqual({ ok: true });
    expect(await isFree(k("account:1"), k("account:2"))).toBe(true);
  });

  test("keys are shown as they were given, and locked in NFC", async () => {
    start();
    const held = await backend.lock([k("cafe\u0301"), k("b")]);
    expect(held.locks.map(({ key }) => key)).toEqual([k("b"), k("cafe\u0301")]);
    expect(held.fences.has(k("cafe\u0301"))).toBe(true);
    expect(await backend.isLocked({ key: k("caf\u00e9") })).toBe(true);
    await held.release();
  });

  test("one key in a list is a list of one", async () => {
    start();
    const held = await backend.lock([k("a")]);
    expect(held.locks).toHaveLength(1);
    expect(await held.extend(ttlMs)).toMatchObject({ ok: true });
    expect(await held.release()).toEqual({ ok: true });
    expect(await isFree(k("a"))).toBe(true);
  });

  test("all or nothing: what is held by others leaves the others free", async () => {
    start();
    const other = await backend.lock(k("b"));
    const attempt = await backend.acquire({ claims: [k("a"), k("b"), k("c")], ttlMs });
    expect(attempt).toMatchObject({ ok: false, reason: "locked", key: k("b") });
    expect(await attempt.release()).toEqual({ ok: false });
    expect(await isFree(k("a"), k("c"))).toBe(true);
    await other.release();
    const again = await backend.acquire({ claims: [k("a"), k("b"), k("c")], ttlMs });
    expect(again).toMatchObject({ ok: true });
    await again.release();
  });

  test("acquire(), release() and extend() by lock ids", async () => {
    start();
    const held = await backend.acquire({ claims: [k("a"), k("b")], ttlMs });
    if (!held.ok) throw new Error("nobody else is there");
    const { lockIds } = held;
    const extended = await backend.extend({ lockIds, ttlMs: 2 * ttlMs });
    if (!extended.ok) throw new Error("both are held");
    for (const lockId of lockIds) {
      const found = await backend.lookup({ lockId });
      expect(found?.expiresAtMs).toBeGreaterThanOrEqual(extended.expiresAtMs);
    }
    // One of them is gone: none is extended, and the other one is released.
    await backend.forceRelease(k("a"));
    expect(await backend.extend({ lockIds, ttlMs: 3 * ttlMs })).toEqual({ ok: false });
    const left = await backend.lookup({ key: k("b") });
    if (isOneStep) expect(left).toMatchObject({ expiresAtMs: extended.expiresAtMs });
    expect(await backend.release({ lockIds })).toEqual({ ok: false });
    expect(await isFree(k("a"), k("b"))).toBe(true);
    expect(await backend.release({ lockIds })).toEqual({ ok: false });
  });

  test("an extension is for all, and the handle shows until when", async () => {
    start();
    const held = await backend.lock([k("a"), k("b")], { ttlMs });
    const before = held.expiresAtMs;
    const result = await held.extend(2 * ttlMs);
    expect(result).toEqual({ ok: true, expiresAtMs: held.expiresAtMs });
    expect(held.expiresAtMs).toBeGreaterThan(before + ttlMs / 2);
    for (const key of [k("a"), k("b")]) {
      const found = await backend.lookup({ key });
      expect(found?.expiresAtMs).toBeGreaterThanOrEqual(held.expiresAtMs);
    }
    await held.release();
  });

  test("an extension that finds one gone names it, and so does the signal", async () => {
    start();
    const held = await backend.lock([k("a"), k("b"), k("c")], { ttlMs });
    const { signal } = held;
    await backend.forceRelease(k("b"));
    expect(await held.extend(ttlMs)).toEqual({ ok: false });
    const context = { key: k("b"), lockId: held.locks[1]?.lockId };
    expect(signal.reason).toMatchObject({ code: "LockLost", context });
    expect(await held.extend(ttlMs)).toEqual({ ok: false });
    expect(await held.release()).toEqual({ ok: false });
    expect(await isFree(k("a"), k("c"))).toBe(true);
    expect(lost).toHaveLength(1);
  });

  test("a release that finds one gone frees the others, and names it", async () => {
    start();
    const held = await backend.lock([k("a"), k("b"), k("c")], { ttlMs });
    const { signal } = held;
    await backend.forceRelease(k("c"));
    expect(await held.release()).toEqual({ ok: false });
    expect(signal.reason).toMatchObject({ code: "LockLost", context: { key: k("c") } });
    expect(await isFree(k("a"), k("b"))).toBe(true);
  });

  test("a heartbeat that finds one gone ends all", async () => {
    start();
    const held = await backend.lock([k("a"), k("b")], {
      ttlMs: 5_000,
      autoExtend: { everyMs: 20 },
    });
    const before = held.expiresAtMs;
    await until(() => held.expiresAtMs > before);
    await backend.forceRelease(k("b"));
    await until(() => held.signal.aborted);
    const context = { key: k("b"), lockId: held.locks[1]?.lockId };
    expect(held.signal.reason).toMatchObject({ code: "LockLost", context });
    expect(await held.release()).toEqual({ ok: false });
    expect(await isFree(k("a"), k("b"))).toBe(true);
  });

  test("one that is released by its id leaves the others to their handle", async () => {
    start();
    const options = { ttlMs: 1_500, autoExtend: true };
    const held = await backend.lock([k("a"), { key: k("api"), slots: 2 }, k("c")], options);
    const { signal } = held;
    for (const place of [1, 0]) {
      const lockId = held.lockIds[place] as string;
      expect(await backend.release({ lockId })).toEqual({ ok: true });
    }
    const before = held.expiresAtMs;
    // Longer than the TTL and the tolerance.
    await until(() => held.expiresAtMs > before + 3_000);
    expect(await isFree(k("a"))).toBe(true);
    expect(await isFree(k("c"))).toBe(false);
    held.assertHeld();
    expect(await held.extend(options.ttlMs)).toMatchObject({ ok: true });
    expect(await held.release()).toEqual({ ok: true });
    expect(await isFree(k("c"))).toBe(true);
    expect([signal.aborted, lost]).toEqual([false, []]);
  });

  test("one that another backend releases by its id leaves the others to their handle", async () => {
    start();
    const options = { ttlMs: 1_500, autoExtend: true };
    const held = await backend.lock([k("a"), k("b")], options);
    // Nobody else sees what is in the memory of one.
    const other = name === "SQLite in memory" ? backend : connect({});
    expect(await other.release({ lockId: held.lockIds[0] as string })).toEqual({ ok: true });
    const before = held.expiresAtMs;
    await until(() => held.expiresAtMs > before + 3_000);
    expect(held.signal.aborted).toBe(false);
    expect(await held.release()).toEqual({ ok: true });
    expect(lost).toEqual([]);
  });

  test("are released at most once, and by the end of a block", async () => {
    start();
    const held = await backend.lock([k("a"), k("b")]);
    expect(await Promise.all([held.release(), held.release()])).toEqual([
      { ok: true },
      { ok: false },
    ]);
    {
      await using inner = await backend.lock([k("a"), k("b")]);
      expect(inner.locks).toHaveLength(2);
      expect(await isFree(k("a"))).toBe(false);
    }
    expect(await isFree(k("a"), k("b"))).toBe(true);
  });

  test("what is spread of a handle has all of it", async () => {
    start();
    const { release, extend, ...members } = { ...(await backend.lock([k("a"), k("b")])) };
    expect(members.signal.aborted).toBe(false);
    expect(members.fences.get(k("a"))).toBe(members.locks[0]?.fence);
    expect(await extend(ttlMs)).toMatchObject({ ok: true });
    expect(await release()).toEqual({ ok: true });
    const slot = { ...(await backend.lock({ key: k("a"), slots: 2 })) };
    expect(slot.slot).toBeGreaterThan(0);
    expect(slot.signal.aborted).toBe(false);
    expect(await slot.release()).toEqual({ ok: true });
  });

  test("options of a disposal apply to several locks", async () => {
    start();
    const held = await backend.lock([k("a"), k("b")], { disposeTimeoutMs: 1_000 });
    expect(held.locks).toHaveLength(2);
    expect(held.signal.aborted).toBe(false);
    await held[Symbol.asyncDispose]();
    expect(await isFree(k("a"), k("b"))).toBe(true);
  });

  test("slots: as many as asked for, each with its number and its fence", async () => {
    start();
    const claim = { key: k("api"), slots: 3 } as const;
    const held = await Promise.all([1, 2, 3].map(() => backend.lock(claim, { ttlMs })));
    expect(held.map(({ slot }) => slot).sort()).toEqual([1, 2, 3]);
    expect(new Set(held.map(({ lockId }) => lockId)).size).toBe(3);
    expect(held.map(({ key }) => key)).toEqual([k("api"), k("api"), k("api")]);
    const full = await backend.acquire({ claims: [claim], ttlMs });
    expect(full).toMatchObject({ ok: false, reason: "locked", key: k("api") });
    // The lock on the key is another one.
    const own = await backend.lock(k("api"));
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
    const two = { key: k("api"), slots: 2 } as const;
    const held = await Promise.all([backend.lock(two), backend.lock(two)]);
    expect(await lockError(backend.lock(two, ONCE))).toHaveProperty("code", "AcquisitionTimeout");
    const third = await backend.lock({ key: k("api"), slots: 3 }, ONCE);
    expect(third.slot).toBe(3);
    for (const each of [third, ...held]) await each.release();
  });

  test("take: k or none", async () => {
    start();
    const held = await backend.lock({ key: k("api"), slots: 5, take: 3 });
    expect(new Set(held.locks.map(({ slot }) => slot)).size).toBe(3);
    expect(held.locks.map(({ key }) => key)).toEqual([k("api"), k("api"), k("api")]);
    expect([...held.fences.keys()]).toEqual([k("api")]);
    const claims = [{ key: k("api"), slots: 5, take: 3 }, k("order:7")];
    expect(await backend.acquire({ claims, ttlMs })).toMatchObject({ ok: false, key: k("api") });
    const rest = await backend.lock([k("order:7"), { key: k("api"), slots: 5, take: 2 }], ONCE);
    expect(rest.locks.map(({ key }) => key)).toEqual([k("api"), k("api"), k("order:7")]);
    const all = [...held.locks, ...rest.locks].flatMap(({ slot }) => slot ?? []);
    expect(all.sort()).toEqual([1, 2, 3, 4, 5]);
    await rest.release();
    expect(await isFree(k("order:7"))).toBe(true);
    await held.release();
    const five = await backend.lock({ key: k("api"), slots: 5, take: 5 }, ONCE);
    await five.release();
  });

  test("take: 1 gives a list of one", async () => {
    start();
    const held: HeldLocks = await backend.lock({ key: k("api"), slots: 5, take: 1 });
    expect(held.locks).toMatchObject([{ key: k("api"), slot: expect.any(Number) as number }]);
    await held.release();
  });

  test("lock() gives its function the locks, and frees them", async () => {
    start();
    const fences = await lock(
      backend,
      async ({ fences: given, lockIds, extend, signal, locks }) => {
        expect(locks.map(({ key }) => key)).toEqual([k("a"), k("b")]);
        expect(await extend(ttlMs)).toMatchObject({ ok: true });
        expect(signal.aborted).toBe(false);
        expect(await backend.lookup({ lockId: lockIds[1] as string })).not.toBeNull();
        return given;
      },
      { key: [k("a"), k("b")], ttlMs },
    );
    expect([...fences.keys()]).toEqual([k("a"), k("b")]);
    const slot = await lock(
      backend,
      ({ slot: number, fence, key }) => {
        expect([typeof fence, key]).toEqual(["string", k("api")]);
        return number;
      },
      { key: { key: k("api"), slots: 5 } },
    );
    expect(slot).toBeGreaterThan(0);
    expect(await isFree(k("a"), k("b"))).toBe(true);
  });

  test("releaseAll() gives all of them back", async () => {
    start();
    // It grants nothing afterwards.
    backend = connect({ onLost });
    const held = await backend.lock([k("a"), k("b")], { autoExtend: true });
    await backend.lock({ key: k("api"), slots: 2, take: 2 });
    const { signal } = held;
    expect(await backend.releaseAll()).toEqual({ released: 2, gone: 0, failed: [] });
    expect(signal.reason).toMatchObject({ code: "LockLost" });
    expect(await isFree(k("a"), k("b"))).toBe(true);
    expect(lost).toHaveLength(2);
  });

  test("errors of an acquisition name what was asked for", async () => {
    start();
    const other = await backend.lock(k("b"));
    const error = await lockError(backend.lock([k("a"), k("b")], ONCE));
    expect(error).toMatchObject({
      code: "AcquisitionTimeout",
      // Which of them stood in the way.
      context: { key: k("b"), keys: [k("a"), k("b")] },
    });
    expect(error.message).not.toContain(k("b"));
    await other.release();
  });
});
