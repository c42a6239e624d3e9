/** What must hold on a store that processes on the TypeScript library and on this one share. */

import { expect, test } from "vitest";
import { getByKeyRaw } from "syncguard";
import { run } from "./child";
import { isFromTheClock, next } from "./fences";
import { type Backend, newKey, take } from "./suite";
import { until } from "./until";

/** As much of the TypeScript library as a fleet needs. */
export type Library = {
  acquire: (opts: {
    key: string;
    ttlMs: number;
  }) => Promise<{ ok: boolean; lockId: string; fence: string; expiresAtMs: number }>;
  release: (opts: { lockId: string }) => Promise<{ ok: boolean }>;
  extend: (opts: { lockId: string; ttlMs: number }) => Promise<{ ok: boolean }>;
  read: (opts: { key: string }) => Promise<Record<string, unknown> | null>;
};

export type Fleet = {
  /** The program of one process, of the fixtures; it prints what `member` in `fleet-member.mjs` reports. */
  program: string;
  /** The arguments of each process, before the number of locks that it is to take. */
  members: () => string[][];
  goal: number;
  /** The fences of each key, in the order in which their holders wrote them down. */
  given: () => Promise<string[][]>;
};

type Report = { granted: number; byTheOther: number; shared: number; wrong: string[] };

/** Processes of both kinds, at once. */
export function testFleet({ program, members, goal, given }: Fleet): void {
  test("four processes of both kinds exclude each other", { timeout: 120_000 }, async () => {
    const fleet = members().map((args) => run("node", program, [...args, String(goal)]));
    const reports: Report[] = [];
    for (const { code, stdout, stderr } of await Promise.all(fleet)) {
      expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
      reports.push(JSON.parse(stdout) as Report);
    }
    expect(reports).toHaveLength(4);
    expect(reports.flatMap(({ wrong }) => wrong)).toEqual([]);
    for (const { granted, byTheOther, shared } of reports) {
      expect(granted).toBeGreaterThanOrEqual(goal);
      expect(byTheOther).toBeGreaterThanOrEqual(goal / 10);
      expect(shared).toBeGreaterThan(0);
    }
    const keys = await given();
    expect(keys).toHaveLength(3);
    for (const fences of keys) expect(fences).toEqual([...new Set(fences)].sort());
    const granted = reports.reduce((sum, report) => sum + report.granted, 0);
    expect(keys.flat()).toHaveLength(granted);
  });
}

export type Sides = {
  ours: () => Backend;
  theirs: () => Library;
  /** The store's clock. */
  nowMs: () => Promise<number>;
  /** What they store beside what both libraries know, which is to survive us. */
  unknown?: Record<string, unknown>;
};

/** Each side and the locks of the other. */
export function testSides({ ours, theirs, nowMs, unknown = {} }: Sides): void {
  test("what they store is read, extended and released", async () => {
    const backend = ours();
    // Theirs is not always written alike.
    for (let round = 0; round < 12; round += 1) {
      const key = newKey();
      const { lockId, fence, expiresAtMs } = await theirs().acquire({ key, ttlMs: 5_000 });
      expect(await backend.acquire({ key, ttlMs: 5_000 })).toMatchObject({ ok: false });
      const lock = { key, lockId, fence, acquiredAtMs: expiresAtMs - 5_000 };
      expect(await getByKeyRaw(backend, key)).toMatchObject({ ...lock, expiresAtMs });
      const extended = await backend.extend({ lockId, ttlMs: 60_000 });
      const endsMs = extended.ok && extended.expiresAtMs;
      expect(await theirs().read({ key })).toEqual({ ...lock, expiresAtMs: endsMs, ...unknown });
      expect(await backend.release({ lockId })).toEqual({ ok: true });
      expect(await theirs().read({ key })).toBeNull();
      const ours = await take(backend, key);
      expect(ours.fence > fence).toBe(true);
      expect(ours.fence).toSatisfy(isFromTheClock);
    }
  });

  test("what we store is read, extended and released", async () => {
    const key = newKey();
    const { lockId, fence, release } = await take(ours(), key);
    expect(await theirs().acquire({ key, ttlMs: 5_000 })).toMatchObject({ ok: false });
    expect(await theirs().read({ key })).toMatchObject({ key, lockId, fence });
    expect(await theirs().extend({ lockId, ttlMs: 60_000 })).toMatchObject({ ok: true });
    expect(await theirs().release({ lockId })).toEqual({ ok: true });
    expect(await release()).toEqual({ ok: false });
    expect(await ours().isLocked({ key })).toBe(false);
    // They count on from where we were, and we from where they were.
    const counted = await theirs().acquire({ key, ttlMs: 5_000 });
    expect(counted).toMatchObject({ ok: true, fence: next(fence) });
    await theirs().release({ lockId: counted.lockId });
    expect((await take(ours(), key)).fence > counted.fence).toBe(true);
  });

  test("a lock counts for as long on both sides", async () => {
    const key = newKey();
    const held = await take(ours(), key, 100);
    await until(async () => (await nowMs()) > held.expiresAtMs);
    // Within the tolerance it is still held, by the word of either.
    expect(await ours().isLocked({ key })).toBe(true);
    expect(await theirs().acquire({ key, ttlMs: 5_000 })).toMatchObject({ ok: false });
    await until(async () => !(await ours().isLocked({ key })));
    const theirOwn = await theirs().acquire({ key, ttlMs: 5_000 });
    expect(theirOwn).toMatchObject({ ok: true, fence: next(held.fence) });
  });

  test("theirs take no part of a set that gathers, and no key of one that is granted", async () => {
    const [first, second] = [newKey(), newKey()].sort() as [string, string];
    const isRefused = async (key: string): Promise<boolean> => {
      const attempt = await theirs().acquire({ key, ttlMs: 5_000 });
      if (attempt.ok) await theirs().release({ lockId: attempt.lockId });
      return !attempt.ok;
    };
    const held = await theirs().acquire({ key: second, ttlMs: 60_000 });
    const waiting = ours().lock([first, second], {
      ttlMs: 60_000,
      acquisition: { wait: "poll", timeoutMs: 60_000, retryDelayMs: 20, maxRetryDelayMs: 100 },
    });
    await until(() => isRefused(first));
    expect(await theirs().release({ lockId: held.lockId })).toEqual({ ok: true });
    const both = await waiting;
    expect(await Promise.all([first, second].map(isRefused))).toEqual([true, true]);
    expect(both.fences.get(second)).toSatisfy((fence: string) => fence > held.fence);
    expect(await both.release()).toEqual({ ok: true });
    expect(await Promise.all([first, second].map(isRefused))).toEqual([false, false]);
  });
}
