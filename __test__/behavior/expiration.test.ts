import { expect, test } from "vitest";
import { TIME_TOLERANCE_MS } from "syncguard";
import { isLate } from "../support/in-time";
import { type Backend, newKey, onEveryStore, take } from "../support/suite";
import { until } from "../support/until";

/** A lock on a new key. It is asked for again where its grant came too late, as it may on a busy machine. */
async function takeInTime(backend: Backend, ttlMs: number, tries = 20) {
  try {
    return await take(backend, newKey(), ttlMs);
  } catch (error) {
    if (!isLate(error) || tries === 1) throw error;
    return await takeInTime(backend, ttlMs, tries - 1);
  }
}

onEveryStore("expiration", (connect) => {
  test.concurrent("a lock is held for its TTL and the tolerance, then free", async () => {
    const backend = connect();
    let key: string, expiresAtMs: number, lockId: string;
    // Past its end, within the tolerance, if the machine is not too busy to say so in time.
    for (;;) {
      ({ key, expiresAtMs, lockId } = await takeInTime(backend, 50));
      await until(() => Date.now() > expiresAtMs + 50);
      const isLocked = await backend.isLocked({ key });
      const other = await backend.acquire({ key, ttlMs: 5_000 });
      const found = await backend.lookup({ key });
      if (Date.now() >= expiresAtMs + TIME_TOLERANCE_MS) continue;
      expect(isLocked).toBe(true);
      expect(other.ok).toBe(false);
      expect(found).not.toBeNull();
      break;
    }

    await until(async () => !(await backend.isLocked({ key })));
    expect(Date.now()).toBeGreaterThanOrEqual(expiresAtMs + TIME_TOLERANCE_MS);
    expect(await backend.lookup({ key })).toBeNull();
    expect(await backend.lookup({ lockId })).toBeNull();
    expect((await backend.acquire({ key, ttlMs: 5_000 })).ok).toBe(true);
  });

  test.concurrent("an expired lock can be neither extended nor released", async () => {
    const backend = connect();
    const first = await takeInTime(backend, 1);
    const second = await takeInTime(backend, 1);
    await until(async () => !(await backend.isLocked({ key: second.key })));
    expect(await backend.extend({ lockId: first.lockId, ttlMs: 5_000 })).toEqual({ ok: false });
    expect(await backend.release({ lockId: second.lockId })).toEqual({ ok: false });
    expect(await backend.isLocked({ key: first.key })).toBe(false);
  });

  test.concurrent("an extension within the tolerance keeps the lock", async () => {
    const backend = connect();
    for (;;) {
      const { key, lockId, expiresAtMs } = await takeInTime(backend, 10);
      await until(() => Date.now() > expiresAtMs);
      const extended = await backend.extend({ lockId, ttlMs: 60_000 });
      if (Date.now() >= expiresAtMs + TIME_TOLERANCE_MS) continue;
      expect(extended.ok).toBe(true);
      expect(await backend.isLocked({ key })).toBe(true);
      break;
    }
  });

  test.concurrent("cleanup in isLocked changes no answer and no fence", async () => {
    const backend = connect({ cleanupInIsLocked: true });
    const { key, fence, expiresAtMs } = await takeInTime(backend, 1);
    await until(() => Date.now() > expiresAtMs + 2_100);
    expect(await backend.isLocked({ key })).toBe(false);
    expect(await backend.isLocked({ key })).toBe(false);
    expect((await take(backend, key)).fence > fence).toBe(true);
  });
});
