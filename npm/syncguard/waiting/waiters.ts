/** Counts who waits for each lock of a backend, or is about to. */

import { ShortLivedMap } from "../native/short-lived-map.js";
import type { LockTarget } from "../values/claims.js";

/** Those who wait for one key. */
export type Queue = {
  count: number;
  /** Since when somebody has been waiting without a break, by the clock's `elapsed()`. */
  readonly sinceMs: number;
};

export class Waiters {
  private readonly counts = new ShortLivedMap<string, Queue>();

  get areNone(): boolean {
    return this.counts.size === 0;
  }

  has(key: string): boolean {
    return this.counts.has(key);
  }

  /** The queues by key. */
  queues(): [string, Queue][] {
    return [...this.counts.entries()];
  }

  add(target: LockTarget, nowMs: number): void {
    for (const key of keysOf(target)) {
      const queue = this.counts.get(key);
      if (queue === undefined) this.counts.set(key, { count: 1, sinceMs: nowMs });
      else queue.count += 1;
    }
  }

  remove(target: LockTarget): void {
    for (const key of keysOf(target)) {
      const queue = this.counts.get(key);
      if (queue === undefined || queue.count === 1) this.counts.delete(key);
      else queue.count -= 1;
    }
  }
}

function keysOf({ key, claims }: LockTarget): readonly string[] {
  return claims?.map((claim) => claim.key) ?? [key];
}
