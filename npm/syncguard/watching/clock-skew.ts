/** What a store whose clients' own clocks decide has refused, because this machine's clock is wrong. */

import { callQuietly } from "./reports.js";

export class ClockSkew {
  private readonly listeners = new Set<() => void>();
  private hasWarned = false;

  /** An acquisition or an extension was refused: the clock is ahead of the store's by so many milliseconds at least. */
  refused(aheadMs: number): void {
    for (const listener of this.listeners) callQuietly(listener);
    if (this.hasWarned) return;
    this.hasWarned = true;
    const apart = `${Math.abs(aheadMs)} ms ${aheadMs > 0 ? "ahead of" : "behind"}`;
    console.warn(
      `[SyncGuard] This machine's clock is at least ${apart} Firestore's: until it is synchronised, locks are neither granted nor extended`,
    );
  }

  /** Calls `listener` for each refusal, until the function that is returned is called. */
  listen(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}
