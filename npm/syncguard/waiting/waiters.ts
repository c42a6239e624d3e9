/** How many wait for each lock of a backend, or are about to. */

import { ShortLivedMap } from "../native/short-lived-map.js";
import type { LockTarget } from "../values/claims.js";

export class Waiters {
  private readonly counts = new ShortLivedMap<string, number>();

  get areNone(): boolean {
    return this.counts.size === 0;
  }

  has(key: string): boolean {
    return this.counts.has(key);
  }

  add(target: LockTarget): void {
    this.count(target, 1);
  }

  remove(target: LockTarget): void {
    this.count(target, -1);
  }

  private count({ key, claims }: LockTarget, more: 1 | -1): void {
    for (const name of claims?.map((claim) => claim.key) ?? [key]) {
      const count = (this.counts.get(name) ?? 0) + more;
      if (count > 0) this.counts.set(name, count);
      else this.counts.delete(name);
    }
  }
}
