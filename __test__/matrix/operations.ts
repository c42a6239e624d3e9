/** Sixteen short checks of what locks are for, each with keys of its own, so that all of them can run at the same time. */

import { expect } from "vitest";
import { type AcquisitionOptions, getByKeyRaw, lock, type SyncGuardBackend } from "syncguard";
import { inTime } from "../support/in-time";
import { newKey, take } from "../support/suite";
import { until } from "../support/until";

/** A server, reached through a client. */
export type Stage = {
  /** A backend of its own; all of them see the same locks. */
  readonly connect: () => SyncGuardBackend;
  /** Whether waiters are told of a release. Otherwise they ask now and then. */
  readonly isTold: boolean;
  /** Has the store itself do something only if the lock is held: a script of Redis, a transaction of PostgreSQL. */
  readonly whileHeld: () => Promise<void>;
  readonly close: () => Promise<void>;
};

const FENCE = /^\d{15}$/;

/** Where waiters are told, nothing but that explains why they get the lock before the test has run out of time. */
const patient = ({ isTold }: Stage): AcquisitionOptions => ({
  maxRetries: Infinity,
  retryDelayMs: isTold ? 120_000 : 50,
  maxRetryDelayMs: 120_000,
  backoff: "fixed",
  jitter: "none",
  timeoutMs: 120_000,
});

export const operations: Readonly<Record<string, (stage: Stage) => Promise<void>>> = {
  acquire: async ({ connect }) => {
    const result = await connect().acquire({ key: newKey(), ttlMs: 30_000 });
    expect(result).toMatchObject({ ok: true, fence: expect.stringMatching(FENCE) as unknown });
  },

  "find it busy": async ({ connect }) => {
    const key = newKey();
    await take(connect(), key);
    const refused = await connect().acquire({ key, ttlMs: 30_000 });
    expect(refused).toMatchObject({ ok: false, reason: "locked" });
  },

  "wait until it is released": async (stage) => {
    const [holder, waiter] = [stage.connect(), stage.connect()];
    const key = newKey();
    const held = await take(holder, key);
    const waiting = waiter.lock(key, { acquisition: patient(stage) });
    // By then it has asked.
    for (let turn = 0; turn < 3; turn += 1) expect(await waiter.isLocked({ key })).toBe(true);
    expect(await held.release()).toEqual({ ok: true });
    expect(await (await waiting).release()).toEqual({ ok: true });
  },

  extend: async ({ connect }) => {
    const held = await take(connect(), newKey());
    const { expiresAtMs } = held;
    expect(await held.extend(90_000)).toMatchObject({ ok: true });
    expect(held.expiresAtMs).toBeGreaterThan(expiresAtMs + 50_000);
    expect(await held.release()).toEqual({ ok: true });
    expect(await held.extend(90_000)).toEqual({ ok: false });
  },

  "extend itself": async ({ connect }) => {
    const held = await inTime(3_000, (ttlMs) =>
      connect().lock(newKey(), { ttlMs, autoExtend: true }),
    );
    const { expiresAtMs } = held;
    await until(() => held.expiresAtMs > expiresAtMs);
    expect(held.signal.aborted).toBe(false);
    expect(await held.release()).toEqual({ ok: true });
  },

  release: async ({ connect }) => {
    const [backend, key] = [connect(), newKey()];
    const { lockId } = await take(backend, key);
    expect(await connect().release({ lockId })).toEqual({ ok: true });
    expect(await backend.release({ lockId })).toEqual({ ok: false });
    await take(backend, key);
  },

  "look up by key and by id": async ({ connect }) => {
    const [backend, key] = [connect(), newKey()];
    const { fence, lockId } = await take(backend, key);
    expect(await backend.lookup({ key })).toMatchObject({ fence });
    expect(await backend.lookup({ lockId })).toMatchObject({ fence });
    expect(await backend.lookup({ key: newKey() })).toBeNull();
  },

  isLocked: async ({ connect }) => {
    const [backend, key] = [connect(), newKey()];
    expect(await backend.isLocked({ key })).toBe(false);
    const held = await take(connect(), key);
    expect(await backend.isLocked({ key })).toBe(true);
    await held.release();
    expect(await backend.isLocked({ key })).toBe(false);
  },

  "store who has it": async ({ connect }) => {
    const [backend, key] = [connect(), newKey()];
    // Quotes, and characters of two to four bytes.
    const owner = "worker-7 \"büro\" 'a' 北 🔒";
    const held = await backend.acquire({ key, ttlMs: 30_000, owner });
    expect(held.ok).toBe(true);
    expect(await getByKeyRaw(connect(), key)).toMatchObject({ key, owner });
  },

  "hold two keys at once": async ({ connect }) => {
    const keys = [newKey(), newKey()] as const;
    const both = await connect().lock(keys);
    for (const key of keys) expect(await connect().isLocked({ key })).toBe(true);
    const refused = await connect().acquire({ claims: [newKey(), keys[1]], ttlMs: 30_000 });
    expect(refused).toMatchObject({ ok: false, key: keys[1] });
    expect(await both.release()).toEqual({ ok: true });
    for (const key of keys) expect(await connect().isLocked({ key })).toBe(false);
  },

  "hold slots": async ({ connect }) => {
    const claim = { key: newKey(), slots: 2 };
    const permits = [await connect().lock(claim), await connect().lock(claim)];
    expect(permits.map(({ slot }) => slot).sort()).toEqual([1, 2]);
    const refused = await connect().acquire({ claims: [claim], ttlMs: 30_000 });
    expect(refused).toMatchObject({ ok: false, reason: "locked" });
    expect(await permits[0]?.release()).toEqual({ ok: true });
    expect((await connect().lock(claim)).slot).toBe(permits[0]?.slot);
  },

  "do something once per period": async ({ connect }) => {
    const [backend, key] = [connect(), newKey()];
    expect(await backend.once(key, { due: 1 }, () => "done")).toEqual({ ran: true, value: "done" });
    expect(await connect().once(key, { due: 1 }, () => "again")).toMatchObject({
      ran: false,
      reason: "done",
    });
    expect(await connect().once(key, { due: 2 }, () => "next")).toMatchObject({ ran: true });
  },

  "release by force": async ({ connect }) => {
    const [backend, key] = [connect(), newKey()];
    const held = await take(backend, key);
    expect(await connect().forceRelease(key)).toMatchObject({ ok: true });
    expect(await held.release()).toEqual({ ok: false });
    await take(backend, key);
  },

  "give growing fences": async ({ connect }) => {
    const key = newKey();
    const fences: string[] = [];
    for (let round = 0; round < 3; round += 1) {
      await lock(connect(), ({ fence }) => fences.push(fence), { key });
    }
    expect(fences).toEqual([...new Set(fences)].sort());
    expect(fences).toHaveLength(3);
  },

  expire: async ({ connect }) => {
    const backend = connect();
    // A lock that is granted after its end is refused.
    const held = await inTime(1_500, (ttlMs) => take(backend, newKey(), ttlMs));
    const { key } = held;
    await until(async () => !(await backend.isLocked({ key })));
    const next = await take(connect(), key);
    expect(next.fence > held.fence).toBe(true);
    expect(await held.release()).toEqual({ ok: false });
    expect(await next.release()).toEqual({ ok: true });
  },

  "do something only while it is held": async ({ whileHeld }) => {
    await whileHeld();
  },
};
