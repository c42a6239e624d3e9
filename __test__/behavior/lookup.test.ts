import { hostname } from "node:os";
import { inspect } from "node:util";
import { expect, test } from "vitest";
import { getById, getByIdRaw, getByKey, getByKeyRaw, hashKey, lock, owns } from "syncguard";
import { lockError } from "../support/errors";
import { newKey, onEveryStore, take } from "../support/suite";

onEveryStore("lookup", (connect) => {
  test("shows a lock by key and by lock id, in hashes", async () => {
    const backend = connect();
    const key = newKey();
    const before = Date.now();
    const { lockId, fence, expiresAtMs } = await take(backend, key, 5_000);
    const info = await getByKey(backend, key);
    expect(info).toEqual({
      keyHash: hashKey(key),
      lockIdHash: hashKey(lockId),
      expiresAtMs,
      acquiredAtMs: expiresAtMs - 5_000,
      fence,
    });
    expect(info?.acquiredAtMs).toBeGreaterThanOrEqual(before);
    expect(await getById(backend, lockId)).toEqual(info);
    expect(await backend.lookup({ lockId })).toEqual(info);
  });

  test("prints no identifiers", async () => {
    const backend = connect();
    const key = newKey();
    const { lockId } = await take(backend, key);
    const info = await backend.lookup({ key });
    for (const text of [inspect(info), JSON.stringify(info), Object.values(info ?? {}).join()]) {
      expect(text).not.toContain(key);
      expect(text).not.toContain(lockId);
    }
  });

  test("gives the identifiers to those who ask", async () => {
    const backend = connect();
    const key = `${newKey()}e\u0301`;
    const { lockId } = await take(backend, key);
    const raw = { key: key.normalize("NFC"), lockId };
    expect(await getByKeyRaw(backend, key)).toMatchObject(raw);
    expect(await getByIdRaw(backend, lockId)).toMatchObject(raw);
  });

  test("shows the host and the process of whoever has given no owner label", async () => {
    const backend = connect();
    const owner = `${hostname().slice(0, 80)}:${process.pid}`;
    const shown = async (key: string) => (await getByKeyRaw(backend, key))?.owner;
    const [key, first, second] = [newKey(), newKey(), newKey()];
    const within = async (): Promise<void> => expect(await shown(key)).toBe(owner);
    await lock(backend, within, { key });
    expect(await backend.tryLock(key, within)).toMatchObject({ ran: true });
    expect(await backend.once(key, { due: 1 }, within)).toMatchObject({ ran: true });
    const attempt = await backend.acquire({ key, ttlMs: 5_000 });
    await within();
    if (attempt.ok) await attempt.release();
    const held = await backend.lock(key, { autoExtend: true });
    await within();
    expect(await connect().acquire({ key, ttlMs: 5_000 })).toMatchObject({ ok: false, owner });
    await held.release();
    const both = await backend.lock([first, second]);
    expect([await shown(first), await shown(second)]).toEqual([owner, owner]);
    await both.release();
    const without = async (): Promise<void> => expect(await shown(key)).toBeUndefined();
    await lock(backend, without, { key, owner: null });
    expect(await backend.tryLock(key, without, { owner: null })).toMatchObject({ ran: true });
    expect(await backend.once(key, { due: 2, owner: null }, without)).toMatchObject({ ran: true });
    const nameless = await backend.acquire({ key, ttlMs: 5_000, owner: null });
    await without();
    expect(await connect().acquire({ key, ttlMs: 5_000 })).not.toHaveProperty("owner");
    if (nameless.ok) await nameless.release();
  });

  test("shows the owner label among the raw data", async () => {
    const backend = connect();
    const key = newKey();
    await backend.acquire({ key, ttlMs: 5_000, owner: "worker 7" });
    expect((await getByKeyRaw(backend, key))?.owner).toBe("worker 7");
    expect(await getByKey(backend, key)).not.toHaveProperty("owner");
    const waited = newKey();
    await backend.lock(waited, { owner: "worker 8" });
    expect((await getByKeyRaw(backend, waited))?.owner).toBe("worker 8");
    const other = newKey();
    const read = (): ReturnType<typeof getByKeyRaw> => getByKeyRaw(backend, other);
    const found = await lock(backend, read, { key: other, owner: "worker 9" });
    expect(found?.owner).toBe("worker 9");
    const error = await lockError(lock(backend, read, { key: other, owner: "" }));
    expect(error.message).toBe("owner must not be empty");
  });

  test("follows an extension", async () => {
    const backend = connect();
    const key = newKey();
    const { lockId, extend } = await take(backend, key, 5_000);
    const extended = await extend(50_000);
    expect(extended).toEqual({
      ok: true,
      expiresAtMs: (await getByKey(backend, key))?.expiresAtMs,
    });
    expect(await owns(backend, lockId)).toBe(true);
  });

  test("knows nothing of what is not held", async () => {
    const backend = connect();
    const key = newKey();
    const { lockId, release } = await take(backend, key);
    await release();
    expect(await getByKey(backend, key)).toBeNull();
    expect(await getById(backend, lockId)).toBeNull();
    expect(await getByKeyRaw(backend, key)).toBeNull();
    expect(await getByIdRaw(backend, lockId)).toBeNull();
    expect(await owns(backend, lockId)).toBe(false);
  });
});
