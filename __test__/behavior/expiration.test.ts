import { expect, test } from "vitest";
import { TIME_TOLERANCE_MS } from "syncguard";
import { newKey, onEveryStore, take } from "../support/suite";
import { until } from "../support/until";

onEveryStore("expiration", (connect) => {
  test.concurrent("a lock is held for its TTL and the tolerance, then free", async () => {
    const backend = connect();
    const key = newKey();
    const { expiresAtMs, lockId } = await take(backend, key, 50);
    await until(() => Date.now() > expiresAtMs + 50);
    // Past its end, within the tolerance.
    expect(await backend.isLocked({ key })).toBe(true);
    expect((await backend.acquire({ key, ttlMs: 5_000 })).ok).toBe(false);
    expect(await backend.lookup({ key })).not.toBeNull();
    expect(Date.now()).toBeLessThan(expiresAtMs + TIME_TOLERANCE_MS);

    await until(async () => !(await backend.isLocked({ key })));
    expect(Date.now()).toBeGreaterThanOrEqual(expiresAtMs + TIME_TOLERANCE_MS);
    expect(await backend.lookup({ key })).toBeNull();
    expect(await backend.lookup({ lockId })).toBeNull();
    expect((await backend.acquire({ key, ttlMs: 5_000 })).ok).toBe(true);
  });

  test.concurrent("an expired lock can be neither extended nor released", async () => {
    const backend = connect();
    const [key, other] = [newKey(), newKey()];
    const first = await take(backend, key, 1);
    const second = await take(backend, other, 1);
    await until(async () => !(await backend.isLocked({ key: other })));
    expect(await backend.extend({ lockId: first.lockId, ttlMs: 5_000 })).toEqual({ ok: false });
    expect(await backend.release({ lockId: second.lockId })).toEqual({ ok: false });
    expect(await backend.isLocked({ key })).toBe(false);
  });

  test.concurrent("an extension within the tolerance keeps the lock", async () => {
    const backend = connect();
    const key = newKey();
    const { lockId, expiresAtMs } = await take(backend, key, 10);
    await until(() => Date.now() > expiresAtMs);
    expect((await backend.extend({ lockId, ttlMs: 5_000 })).ok).toBe(true);
    expect(await backend.isLocked({ key })).toBe(true);
  });

  test.concurrent("cleanup in isLocked changes no answer and no fence", async () => {
    const backend = connect({ cleanupInIsLocked: true });
    const key = newKey();
    const { fence, expiresAtMs } = await take(backend, key, 1);
    await until(() => Date.now() > expiresAtMs + 2_100);
    expect(await backend.isLocked({ key })).toBe(false);
    expect(await backend.isLocked({ key })).toBe(false);
    expect((await take(backend, key)).fence > fence).toBe(true);
  });
});
