/** Load on servers that fail. */

import { setImmediate as nextTurn } from "node:timers/promises";
import type { LockErrorCode } from "syncguard";
import { onTestFinished } from "vitest";
import { isLate } from "./in-time";
import { type Backend, newKey } from "./suite";
import { until } from "./until";

/** The timeout of operations under load. */
export const TIMEOUT_MS = 400;
/** What a call may take beyond its timeout, on a machine that is busy with other things. What nothing ends takes longer. */
export const GRACE_MS = 8_000;

/** Workers that take and release locks without a pause, until the test ends at the latest. */
export function load(backend: Backend, workers = 16) {
  const codes = new Set<LockErrorCode>();
  const stats = { pairs: 0, slowestMs: 0, codes };
  /** Keys of acquisitions that failed: nobody holds them. */
  const failed: string[] = [];
  let running = true;
  onTestFinished(() => {
    running = false;
  });
  const timed = async <T>(operation: () => Promise<T>): Promise<T | undefined> => {
    const started = performance.now();
    try {
      return await operation();
    } catch (error) {
      codes.add((error as { code: LockErrorCode }).code);
      // A backend that is closed refuses at once: without this, nothing but refusals would ever run again.
      await nextTurn();
      return undefined;
    } finally {
      stats.slowestMs = Math.max(stats.slowestMs, performance.now() - started);
    }
  };
  const work = async (): Promise<void> => {
    while (running) {
      const key = newKey();
      const result = await timed(() => backend.acquire({ key, ttlMs: 120_000 }));
      if (result === undefined) failed.push(key);
      else if (result.ok && (await timed(() => result.release()))?.ok === true) stats.pairs += 1;
    }
  };
  const all = Promise.all(Array.from({ length: workers }, work));
  return {
    stats,
    /** Waits for so many more pairs. */
    async more(pairs: number): Promise<void> {
      const goal = stats.pairs + pairs;
      await until(() => stats.pairs >= goal, 20_000);
    },
    failed,
    async end() {
      running = false;
      await all;
      return stats;
    },
  };
}

/** Waits until none of `keys` is locked; fails long before the TTL would free them. */
export async function expectFree(backend: Backend, keys: string[]): Promise<void> {
  const isFree = async (key: string): Promise<boolean> => {
    try {
      return !(await backend.isLocked({ key }));
    } catch (error) {
      // The store has come back, but may be busy for longer than an operation of these backends may take.
      if (isLate(error)) return false;
      throw error;
    }
  };
  for (const key of keys) await until(() => isFree(key), 20_000);
}
