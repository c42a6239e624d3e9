/** What a store warns of that no operation fails with alone, or at all. */

import { callQuietly } from "./reports.js";

/** Each is counted, and the first one printed. */
class Warnings {
  private readonly listeners = new Set<() => void>();
  private hasWarned = false;

  /** @param metric - what counts them */
  constructor(readonly metric: { name: string; description: string; unit: string }) {}

  /** Calls `listener` for each warning, until the function that is returned is called. */
  listen(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  protected warn(message: string): void {
    for (const listener of this.listeners) callQuietly(listener);
    if (this.hasWarned) return;
    this.hasWarned = true;
    console.warn(`[SyncGuard] ${message}`);
  }
}

/** What a store whose clients' own clocks decide has refused, because this machine's clock is wrong. */
export class ClockSkew extends Warnings {
  constructor() {
    super({
      name: "syncguard.clock.refusals",
      description: "Acquisitions and extensions refused because this machine's clock is wrong",
      unit: "{refusal}",
    });
  }

  /** An acquisition or an extension was refused: the clock is ahead of the store's by so many milliseconds at least. */
  refused(aheadMs: number): void {
    const apart = `${Math.abs(aheadMs)} ms ${aheadMs > 0 ? "ahead of" : "behind"}`;
    this.warn(
      `This machine's clock is at least ${apart} Firestore's: until it is synchronised, locks are neither granted nor extended`,
    );
  }
}

/** That a connection was made to a primary that no more than half of the Sentinels named. */
export class FewSentinels extends Warnings {
  constructor() {
    super({
      name: "syncguard.sentinel.minorities",
      description: "Connections to a primary that no more than half of the Sentinels named",
      unit: "{connection}",
    });
  }

  named(naming: number, known: number): void {
    const said = `${naming} of ${known} Sentinels ${naming === 1 ? "names" : "name"}`;
    this.warn(
      `Only ${said} the primary that is used, which outside of a failover may be a former one: look at the others`,
    );
  }
}

export type StoreWarnings = Pick<Warnings, "listen" | "metric">;
