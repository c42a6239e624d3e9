import { expect, test } from "vitest";
import { acquireHandle } from "syncguard";
import { newKey, onEveryStore, take } from "../support/suite";

onEveryStore("disposal", (connect) => {
  test("a block frees its lock", async () => {
    const backend = connect();
    const key = newKey();
    {
      await using held = await backend.acquire({ key, ttlMs: 60_000 });
      expect(held.ok).toBe(true);
      expect(await backend.isLocked({ key })).toBe(true);
    }
    expect(await backend.isLocked({ key })).toBe(false);
  });

  test("a block that throws frees its lock", async () => {
    const backend = connect();
    const key = newKey();
    const failing = async (): Promise<void> => {
      await using held = await backend.lock(key, { ttlMs: 60_000 });
      expect(held.fence).toMatch(/^\d{15}$/);
      throw new Error("work failed");
    };
    await expect(failing()).rejects.toThrow("work failed");
    expect(await backend.isLocked({ key })).toBe(false);
  });

  test("the methods work on their own", async () => {
    const backend = connect();
    const key = newKey();
    const { release, extend } = await take(backend, key);
    expect((await extend(60_000)).ok).toBe(true);
    expect(await release()).toEqual({ ok: true });
    expect(await release()).toEqual({ ok: false });
    // Not gated by what was released: the store answers.
    expect(await extend(60_000)).toEqual({ ok: false });
  });

  test("without a lock they do nothing", async () => {
    const backend = connect();
    const key = newKey();
    await take(backend, key);
    const none = await backend.acquire({ key, ttlMs: 5_000 });
    expect(none.ok).toBe(false);
    expect(await none.release()).toEqual({ ok: false });
    expect(await none.extend(5_000)).toEqual({ ok: false });
    await none[Symbol.asyncDispose]();
    expect(await backend.isLocked({ key })).toBe(true);
  });

  test("a block that released by itself ends quietly", async () => {
    const errors: Error[] = [];
    const backend = connect({ onReleaseError: (error) => errors.push(error) });
    const key = newKey();
    {
      await using held = await take(backend, key);
      expect(await held.release()).toEqual({ ok: true });
      await take(backend, key);
    }
    expect(await backend.isLocked({ key })).toBe(true);
    expect(errors).toEqual([]);
  });

  test("a lock that was lost is no error", async () => {
    const errors: Error[] = [];
    const backend = connect({
      onReleaseError: (error) => errors.push(error),
      disposeTimeoutMs: 5_000,
    });
    const key = newKey();
    {
      await using held = await take(backend, key);
      await backend.forceRelease(key);
      expect(held.ok).toBe(true);
    }
    expect(errors).toEqual([]);
  });

  test("acquireHandle gives what acquire gives", async () => {
    const backend = connect();
    const key = newKey();
    {
      await using held = await acquireHandle(backend, { key, ttlMs: 60_000 });
      expect(held.ok).toBe(true);
      expect((await acquireHandle(backend, { key, ttlMs: 60_000 })).ok).toBe(false);
    }
    expect(await backend.isLocked({ key })).toBe(false);
  });
});
