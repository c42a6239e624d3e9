import { expect, test } from "vitest";
import { lock } from "syncguard";
import { createAutoLock } from "syncguard/common";
import { isFromTheClock } from "../support/fences";
import { newKey, onEveryStore, take } from "../support/suite";

onEveryStore("lock()", (connect) => {
  test("runs the function under the lock and gives what it returns", async () => {
    const backend = connect();
    const key = newKey();
    expect(await lock(backend, () => backend.isLocked({ key }), { key })).toBe(true);
    expect(await lock(backend, () => 42, { key })).toBe(42);
    expect(await backend.isLocked({ key })).toBe(false);
  });

  test("throws what the function throws, and frees the lock", async () => {
    const backend = connect();
    const key = newKey();
    const thrown = { not: "an error" };
    await expect(
      lock(
        backend,
        () => {
          throw thrown;
        },
        { key },
      ),
    ).rejects.toBe(thrown);
    await expect(lock(backend, () => Promise.reject(new Error("later")), { key })).rejects.toThrow(
      "later",
    );
    expect(await backend.isLocked({ key })).toBe(false);
  });

  test("hands the lock to the function", async () => {
    const backend = connect();
    const key = newKey();
    await lock(
      backend,
      async (handle) => {
        const info = await backend.lookup({ lockId: handle.lockId });
        expect(handle.key).toBe(key);
        expect(handle.fence).toBe(info?.fence);
        expect(handle.expiresAtMs).toBe(info?.expiresAtMs);
        expect(handle.signal.aborted).toBe(false);
        const { extend } = handle;
        const extended = await extend(90_000);
        expect(extended).toEqual({ ok: true, expiresAtMs: handle.expiresAtMs });
        expect(handle.expiresAtMs).toBeGreaterThan((info?.expiresAtMs ?? 0) + 50_000);
      },
      { key, ttlMs: 5_000 },
    );
  });

  test("a lock that was lost during the work is no error", async () => {
    const backend = connect();
    const key = newKey();
    expect(await lock(backend, () => backend.forceRelease(key), { key })).toEqual({ ok: true });
    expect(await backend.isLocked({ key })).toBe(false);
  });

  test("is bound by createAutoLock", async () => {
    const backend = connect();
    const bound = createAutoLock(backend);
    const key = newKey();
    expect(await bound(({ fence }) => fence, { key })).toSatisfy(isFromTheClock);
    expect(await bound(() => backend.isLocked({ key }), { key })).toBe(true);
  });

  test("backend.lock() holds until it is released", async () => {
    const backend = connect();
    const key = newKey();
    const held = await backend.lock(key, { ttlMs: 5_000 });
    expect(held).toMatchObject({ ok: true, fence: expect.toSatisfy(isFromTheClock) as string });
    expect(held.expiresAtMs).toBeLessThanOrEqual(Date.now() + 5_000);
    expect((await backend.acquire({ key, ttlMs: 5_000 })).ok).toBe(false);
    expect((await held.extend(50_000)).ok).toBe(true);
    expect(await held.release()).toEqual({ ok: true });
    await take(backend, key);
  });
});
