import { expect, test } from "vitest";
import { generateLockId, owns } from "syncguard";
import { newKey, onEveryStore, take } from "../support/suite";
import { until } from "../support/until";

onEveryStore("ownership", (connect) => {
  test("a lock is freed once", async () => {
    const backend = connect();
    const { lockId } = await take(backend, newKey());
    const results = await Promise.all(Array.from({ length: 5 }, () => backend.release({ lockId })));
    expect(results.filter((result) => result.ok)).toHaveLength(1);
  });

  test("a strange lock id changes nothing", async () => {
    const backend = connect();
    const lockId = generateLockId();
    expect(await backend.release({ lockId })).toEqual({ ok: false });
    expect(await backend.extend({ lockId, ttlMs: 5_000 })).toEqual({ ok: false });
    expect(await owns(backend, lockId)).toBe(false);
  });

  test("who lost a lock cannot touch the next holder's", async () => {
    const backend = connect();
    const key = newKey();
    const lost = await take(backend, key, 1);
    await until(async () => !(await backend.isLocked({ key })));
    const next = await take(backend, key);
    expect(await backend.release({ lockId: lost.lockId })).toEqual({ ok: false });
    expect(await backend.extend({ lockId: lost.lockId, ttlMs: 1 })).toEqual({ ok: false });
    expect(await owns(backend, next.lockId)).toBe(true);
    expect(await owns(backend, lost.lockId)).toBe(false);
  });

  test("lock ids never repeat", async () => {
    const backend = connect();
    const locks = await Promise.all(Array.from({ length: 50 }, () => take(backend, newKey())));
    expect(new Set(locks.map(({ lockId }) => lockId)).size).toBe(50);
  });

  test("force release frees a lock whoever holds it", async () => {
    const backend = connect();
    const key = newKey();
    const { lockId } = await take(backend, key);
    expect(await backend.forceRelease(key)).toEqual({ ok: true });
    expect(await backend.isLocked({ key })).toBe(false);
    expect(await backend.forceRelease(key)).toEqual({ ok: false });
    expect(await backend.release({ lockId })).toEqual({ ok: false });
  });
});
