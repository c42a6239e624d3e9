/** Load on servers that fail. */

import type { LockErrorCode } from "syncguard";
import { type Backend, newKey } from "./suite";
import { until } from "./until";

/** The timeout of operations under load. */
export const TIMEOUT_MS = 400;
/** What a call may take beyond its timeout, on a machine that runs other tests at the same time. */
export const GRACE_MS = 600;

/** Workers that take and release locks without a pause. */
export function load(backend: Backend, workers = 16) {
  const codes = new Set<LockErrorCode>();
  const stats = { pairs: 0, slowestMs: 0, codes };
  /** Keys of acquisitions that failed: nobody holds them. */
  const failed: string[] = [];
  let running = true;
  const timed = async <T>(operation: () => Promise<T>): Promise<T | undefined> => {
    const started = performance.now();
    try {
      return await operation();
    } catch (error) {
      codes.add((error as { code: LockErrorCode }).code);
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

/** Waits until none of `keys` is locked; fails after two seconds. */
export async function expectFree(backend: Backend, keys: string[]): Promise<void> {
  for (const key of keys) await until(async () => !(await backend.isLocked({ key })), 2_000);
}
