/** Locks that readers share, and writers have alone: the API. */

import { expect, test, vi } from "vitest";
import { getByIdRaw, getByKeyRaw, lock, type LockEvent, withTelemetry } from "syncguard";
import { lockError } from "../support/errors";
import { inTime } from "../support/in-time";
import { newKey, onEveryStore } from "../support/suite";
import { until } from "../support/until";

const patiently = { timeoutMs: 20_000, maxRetries: Infinity };
const shared = { mode: "shared" } as const;
const ttlMs = 30_000;

onEveryStore("shared locks", (connect) => {
  test("are held beside each other, in each way to ask for them, and by no writer", async () => {
    const [backend, key] = [connect(), newKey()];
    const held = [
      await backend.lock(key, shared),
      await connect().lock({ key, ...shared }),
      await backend.acquire({ key, ...shared, ttlMs }),
      await backend.acquire({ claims: [{ key, ...shared }], ttlMs }),
      await connect().lock([{ key, ...shared }]),
    ];
    const both = await connect().tryLock(
      key,
      async ({ fence, assertHeld }) => {
        assertHeld();
        return await lock(connect(), (inner) => [fence, inner.fence], { key, ...shared });
      },
      shared,
    );
    const [first] = held;
    const { fence } = first as { fence: string };
    expect(both).toEqual({ ran: true, value: [fence, fence] });
    expect(await backend.tryLock(key, () => 1)).toMatchObject({ ran: false, reason: "locked" });
    expect(await backend.acquire({ key, mode: "exclusive", ttlMs })).toMatchObject({ ok: false });
    for (const one of held) {
      if (!one.ok) throw new Error("locked");
      expect(await connect().isLocked({ key })).toBe(true);
      expect(await one.extend(60_000)).toMatchObject({ ok: true });
      expect(await one.release()).toEqual({ ok: true });
      expect(await one.release()).toEqual({ ok: false });
    }
    expect(await backend.isLocked({ key })).toBe(false);
    await using writer = await backend.lock(key);
    expect(writer.fence > fence).toBe(true);
    expect(await connect().acquire({ key, ...shared, ttlMs })).toMatchObject({ ok: false });
  });

  test("let a writer in when the last is released, and then each other", async () => {
    const [backend, key] = [connect(), newKey()];
    const readers = [await backend.lock(key, shared), await connect().lock(key, shared)];
    let isWriting = false;
    const writing = lock(connect(), () => (isWriting = true), { key, acquisition: patiently });
    await readers[0]?.release();
    expect(isWriting).toBe(false);
    await readers[1]?.release();
    expect(await writing).toBe(true);
    const writer = await backend.lock(key);
    const waiting = [1, 2, 3].map(() => connect().lock(key, { ...shared, acquisition: patiently }));
    await writer.release();
    for (const reader of await Promise.all(waiting)) reader.assertHeld();
  });

  test("tell who waits in vain for which key, and let each other in after a writer that does", async () => {
    const [backend, key] = [connect(), newKey()];
    const waitsInVain = (mode: "shared" | "exclusive") =>
      lockError(
        inTime(300, (timeoutMs) => connect().lock(key, { mode, acquisition: { timeoutMs } })),
      );
    const isLate = { code: "AcquisitionTimeout", context: { key } };
    const joins = async (): Promise<void> => {
      const reader = await connect().lock(key, { ...shared, acquisition: patiently });
      expect(await reader.release()).toEqual({ ok: true });
    };
    const reader = await backend.lock(key, { ...shared, ttlMs: 600_000 });
    const giving = new AbortController();
    const { signal } = giving;
    const aborted = lockError(backend.lock(key, { signal, acquisition: patiently }));
    expect(await waitsInVain("exclusive")).toMatchObject(isLate);
    giving.abort();
    expect(await aborted).toMatchObject({ code: "Aborted", context: { key } });
    await joins();
    expect(await reader.release()).toEqual({ ok: true });
    const writer = await backend.lock(key, { ttlMs: 600_000 });
    expect(await waitsInVain("shared")).toMatchObject(isLate);
    expect(await writer.release()).toEqual({ ok: true });
    expect(await backend.isLocked({ key })).toBe(false);
  });

  test("do not become exclusive, which is said to whoever asks for that inside of one", async () => {
    vi.spyOn(console, "warn").mockImplementation(() => undefined);
    const [backend, key] = [connect(), newKey()];
    const upgrades = async ({ assertHeld }: { assertHeld: () => void }): Promise<unknown> => {
      const exclusive = (timeoutMs: number) =>
        lock(backend, () => undefined, { key, acquisition: { timeoutMs } });
      const error = await lockError(inTime(300, exclusive));
      await using reader = await connect().lock(key, { ...shared, acquisition: patiently });
      reader.assertHeld();
      assertHeld();
      return error;
    };
    const error = await lock(backend, upgrades, { key, ...shared, ttlMs: 600_000 });
    expect(error).toMatchObject({ code: "AcquisitionTimeout", context: { key } });
    expect((error as Error).message).toContain("release that, and read again");
    expect(await backend.isLocked({ key })).toBe(false);
  });

  test("are released and extended by their own ids, and not by that of all", async () => {
    const [backend, key] = [connect(), newKey()];
    const { lockId } = await backend.lock(key, shared);
    await using other = await connect().lock(key, shared);
    const found = await getByKeyRaw(backend, key);
    const group = found?.lockId ?? "";
    expect([lockId, other.lockId]).not.toContain(group);
    expect(await backend.release({ lockId: group })).toEqual({ ok: false });
    expect(await backend.extend({ lockId: group, ttlMs })).toMatchObject({ ok: false });
    expect(await getByIdRaw(connect(), lockId)).toMatchObject({ key, lockId });
    expect(await connect().extend({ lockId, ttlMs })).toMatchObject({ ok: true });
    expect(await connect().release({ lockId })).toEqual({ ok: true });
    expect(await getByIdRaw(connect(), lockId)).toBeNull();
    expect(await backend.isLocked({ key })).toBe(true);
  });

  test("are lost by all when the key is freed by force", async () => {
    const [backend, key] = [connect(), newKey()];
    const lost: string[] = [];
    const options = {
      ...{ ttlMs: 1_000, autoExtend: { everyMs: 50 }, ...shared },
      onLost: (_: unknown, { lockId }: { lockId: string }) => void lost.push(lockId),
    };
    const readers = [await backend.lock(key, options), await connect().lock(key, options)];
    expect(await connect().forceRelease(key)).toEqual({ ok: true });
    await using writer = await backend.lock(key);
    await until(() => readers.every(({ signal }) => signal.aborted));
    expect(lost.sort()).toEqual(readers.map(({ lockId }) => lockId).sort());
    for (const reader of readers) {
      expect(await reader.release()).toEqual({ ok: false });
    }
    writer.assertHeld();
  });

  test("go together with other keys, all or nothing", async () => {
    const [backend, read, written] = [connect(), newKey(), newKey()];
    const set = await backend.lock([{ key: read, ...shared }, written]);
    expect([...set.fences.keys()].sort()).toEqual([read, written].sort());
    await using beside = await connect().lock(read, shared);
    const refused = await connect().acquire({ claims: [{ key: read, ...shared }, written], ttlMs });
    expect(refused).toMatchObject({ ok: false, key: written });
    expect(await set.release()).toEqual({ ok: true });
    expect(await backend.isLocked({ key: written })).toBe(false);
    expect(await backend.tryLock([read, written], () => 1)).toMatchObject({
      ran: false,
      key: read,
    });
    beside.assertHeld();
  });

  test("are told of with their mode", async () => {
    const events: LockEvent[] = [];
    const observed = withTelemetry(connect(), { onEvent: (event) => events.push(event) });
    const key = newKey();
    const held = await observed.acquire({ key, ...shared, ttlMs } as never);
    expect(held.ok).toBe(true);
    await connect().forceRelease(key);
    await lock(observed, () => undefined, { key, ...shared });
    await lock(observed, () => undefined, { key });
    const modes = events.filter(({ type }) => type === "acquire").map(({ mode }) => mode);
    expect(modes.slice(0, -1).every((mode) => mode === "shared")).toBe(true);
    expect(modes.at(-1)).toBeUndefined();
  });
});
