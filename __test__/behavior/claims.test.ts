import { expect, test } from "vitest";
import { lock } from "syncguard";
import { lockError } from "../support/errors";
import { newKey, onEveryStore, take } from "../support/suite";
import { until } from "../support/until";

const patiently = { timeoutMs: 20_000, maxRetries: Infinity };

onEveryStore("several keys and slots", (connect) => {
  test("several keys are held together and freed together", async () => {
    const backend = connect();
    const keys = [newKey(), newKey(), newKey(), newKey()];
    const held = await backend.lock(keys);
    expect([...held.fences.keys()].sort()).toEqual([...keys].sort());
    expect(new Set(held.lockIds).size).toBe(4);
    for (const key of keys) {
      expect(held.fences.get(key)).toMatch(/^\d{15}$/);
      expect(await connect().isLocked({ key })).toBe(true);
    }
    expect(held.signal.aborted).toBe(false);
    const { expiresAtMs } = held;
    expect(await held.extend(60_000)).toMatchObject({ ok: true });
    expect(held.expiresAtMs).toBeGreaterThan(expiresAtMs);
    expect(await held.release()).toEqual({ ok: true });
    for (const key of keys) expect(await backend.isLocked({ key })).toBe(false);
  });

  test("a key that is held refuses all, and is named", async () => {
    const backend = connect();
    const keys = [newKey(), newKey(), newKey()];
    const other = await take(backend, keys[1] as string);
    const refused = await backend.acquire({ claims: keys, ttlMs: 5_000 });
    expect(refused).toMatchObject({ ok: false, reason: "locked", key: keys[1] });
    expect(await backend.isLocked({ key: keys[0] as string })).toBe(false);
    expect(await backend.isLocked({ key: keys[2] as string })).toBe(false);
    await other.release();
    const granted = await backend.acquire({ claims: keys, ttlMs: 5_000 });
    if (!granted.ok) throw new Error("locked");
    const { lockIds } = granted;
    expect(await backend.extend({ lockIds, ttlMs: 60_000 })).toMatchObject({ ok: true });
    expect(await backend.release({ lockIds })).toEqual({ ok: true });
    expect(await backend.release({ lockIds })).toEqual({ ok: false });
  });

  test("of five slots, five are held", async () => {
    const claim = { key: newKey(), slots: 5 };
    const backend = connect();
    const permits = await Promise.all(Array.from({ length: 5 }, () => connect().lock(claim)));
    expect(permits.map(({ slot }) => slot).sort()).toEqual([1, 2, 3, 4, 5]);
    expect(await backend.acquire({ claims: [claim], ttlMs: 5_000 })).toMatchObject({
      ok: false,
      key: claim.key,
    });
    const waiting = backend.lock(claim, { acquisition: patiently });
    const [first] = permits;
    await first?.release();
    const next = await waiting;
    expect(next.slot).toBe(first?.slot);
    expect(BigInt(next.fence)).toBeGreaterThan(BigInt(first?.fence ?? 0));
    await Promise.all([next, ...permits.slice(1)].map((permit) => permit.release()));
  });

  test("work under a semaphore is done by so many at once, and no more", async () => {
    const claim = { key: newKey(), slots: 3 };
    let [inside, most] = [0, 0];
    await Promise.all(
      Array.from({ length: 12 }, () =>
        lock(
          connect(),
          async ({ slot }) => {
            expect(slot).toBeGreaterThan(0);
            inside += 1;
            most = Math.max(most, inside);
            await new Promise(setImmediate);
            inside -= 1;
          },
          { key: claim, acquisition: patiently },
        ),
      ),
    );
    expect(most).toBeGreaterThan(0);
    expect(most).toBeLessThanOrEqual(3);
  });

  test("several slots are taken, or none, beside a key", async () => {
    const backend = connect();
    const [order, partner] = [newKey(), newKey()];
    const claims = [order, { key: partner, slots: 5, take: 3 }];
    const held = await backend.lock(claims);
    expect(held.locks).toHaveLength(4);
    const slots = held.locks.filter((one) => one.key === partner).map((one) => one.slot);
    expect(new Set(slots).size).toBe(3);
    expect(held.locks.find((one) => one.key === order)?.slot).toBeUndefined();
    const more = { key: partner, slots: 5, take: 3 };
    expect((await backend.acquire({ claims: [more], ttlMs: 5_000 })).ok).toBe(false);
    const two = await backend.lock({ key: partner, slots: 5, take: 2 });
    expect(two.lockIds).toHaveLength(2);
    await two.release();
    await held.release();
  });

  test("sets that overlap in opposite orders do not block one another", async () => {
    const [a, b, c] = [newKey(), newKey(), newKey()];
    const inside = new Map<string, number>();
    const work = (keys: readonly string[]): Promise<void> =>
      lock(
        connect(),
        async () => {
          for (const key of keys) {
            expect(inside.get(key) ?? 0).toBe(0);
            inside.set(key, 1);
          }
          await new Promise(setImmediate);
          for (const key of keys) inside.set(key, 0);
        },
        { key: keys, acquisition: patiently },
      );
    const sets = [[a, b], [b, a], [c, a], [b, c]]; // prettier-ignore
    await Promise.all(Array.from({ length: 16 }, (_, at) => work(sets[at % 4] as string[])));
    for (const key of [a, b, c]) expect(await connect().isLocked({ key })).toBe(false);
  });

  test("heartbeats extend all, and the loss of one is the loss of all and is named", async () => {
    const backend = connect();
    const keys = [newKey(), newKey()];
    const lost: unknown[] = [];
    const held = await backend.lock(keys, {
      ttlMs: 1_500,
      autoExtend: { everyMs: 100 },
      onLost: (error) => lost.push(error.context?.key),
    });
    const { expiresAtMs } = held;
    await until(() => held.expiresAtMs > expiresAtMs);
    await backend.forceRelease(keys[1] as string);
    await until(() => held.signal.aborted);
    expect(held.signal.reason).toMatchObject({ code: "LockLost", context: { key: keys[1] } });
    expect(lost).toEqual([keys[1]]);
    expect(await held.release()).toEqual({ ok: false });
    expect(await backend.isLocked({ key: keys[0] as string })).toBe(false);
  });

  test("a wait for several that is cancelled leaves nothing behind", async () => {
    const backend = connect();
    const keys = [newKey(), newKey()];
    const other = await take(backend, keys[0] as string);
    const controller = new AbortController();
    const waiting = lockError(backend.lock(keys, { signal: controller.signal }));
    controller.abort();
    expect((await waiting).code).toBe("Aborted");
    await other.release();
    // What was taken of them is undone in the background.
    for (const key of keys) await until(async () => !(await backend.isLocked({ key })));
  });
});
