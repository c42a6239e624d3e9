import { expect, test } from "vitest";
import type { LockError } from "syncguard";
import { lockError } from "../support/errors";
import { newKey, onEveryStore, take } from "../support/suite";

onEveryStore("lifecycle", (connect) => {
  test("a lock is taken, seen, extended and freed", async () => {
    const backend = connect();
    const key = newKey();
    const before = Date.now();
    const held = await take(backend, key, 5_000);
    expect(held.lockId).toMatch(/^[A-Za-z0-9_-]{22}$/);
    expect(held.fence).toMatch(/^\d{15}$/);
    expect(held.expiresAtMs).toBeGreaterThanOrEqual(before + 5_000);
    expect(held.expiresAtMs).toBeLessThanOrEqual(Date.now() + 5_000);
    expect(await backend.isLocked({ key })).toBe(true);

    const extended = await backend.extend({ lockId: held.lockId, ttlMs: 60_000 });
    if (!extended.ok) throw new Error("expected an extension");
    expect(extended.expiresAtMs).toBeGreaterThan(held.expiresAtMs + 50_000);

    expect(await backend.release({ lockId: held.lockId })).toEqual({ ok: true });
    expect(await backend.isLocked({ key })).toBe(false);
  });

  test("an extension replaces the time that is left", async () => {
    const backend = connect();
    const held = await take(backend, newKey(), 60_000);
    const extended = await backend.extend({ lockId: held.lockId, ttlMs: 5_000 });
    if (!extended.ok) throw new Error("expected an extension");
    expect(extended.expiresAtMs).toBeLessThan(held.expiresAtMs - 50_000);
    expect(extended.expiresAtMs).toBeLessThanOrEqual(Date.now() + 5_000);
  });

  test("a key is the same key in every Unicode form", async () => {
    const backend = connect();
    const key = newKey();
    await take(backend, `${key}caf\u00e9`);
    expect(await backend.isLocked({ key: `${key}cafe\u0301` })).toBe(true);
  });

  test("the longest key works", async () => {
    const backend = connect();
    const key = newKey().padEnd(512, "k");
    await take(backend, key);
    expect(await backend.isLocked({ key })).toBe(true);
  });

  test("keys that look alike are different locks", async () => {
    const backend = connect();
    const key = newKey();
    for (const suffix of ["", " ", ".", "/", ":", "%", "\u0001", "a", "A"]) {
      expect((await backend.acquire({ key: key + suffix, ttlMs: 5_000 })).ok).toBe(true);
    }
  });

  test("a key with a zero byte is a lock of its own, or refused", async () => {
    const backend = connect();
    const key = newKey();
    await take(backend, key);
    const attempt = backend.acquire({ key: `${key}\u0000`, ttlMs: 5_000 });
    // PostgreSQL's texts cannot hold it.
    const outcome = await attempt.catch((error: unknown) => (error as LockError).message);
    if (typeof outcome === "string") expect(outcome).toMatch(/^Key must not contain U\+0000/);
    else expect(outcome.ok).toBe(true);
  });

  test("the backend says what it can do, and nobody changes that", () => {
    const { capabilities } = connect();
    expect(capabilities.supportsFencing).toBe(true);
    expect(["server", "client"]).toContain(capabilities.timeAuthority);
    expect(Object.isFrozen(capabilities)).toBe(true);
  });

  test("the methods need no this", async () => {
    const { acquire, release, isLocked } = connect();
    const key = newKey();
    const result = await acquire({ key, ttlMs: 5_000 });
    if (!result.ok) throw new Error("expected the lock to be free");
    expect(await isLocked({ key })).toBe(true);
    expect(await release({ lockId: result.lockId })).toEqual({ ok: true });
  });

  // The last: some stores have one backend for all tests.
  test("a closed backend refuses everything, with one error", async () => {
    const backend = connect();
    const key = newKey();
    const { lockId, release, extend } = await take(backend, key);
    await backend.close();
    await backend.close();
    for (const operation of [
      backend.acquire({ key, ttlMs: 5_000 }),
      backend.isLocked({ key }),
      backend.lookup({ key }),
      backend.lookup({ lockId }),
      backend.forceRelease(key),
      backend.extend({ lockId, ttlMs: 5_000 }),
      extend(5_000),
    ]) {
      expect(await lockError(operation)).toMatchObject({
        code: "Aborted",
        message: "the backend is closed",
      });
    }
    expect(await lockError(release())).toMatchObject({
      code: "Aborted",
      message: "the backend is closed",
    });
  });
});
