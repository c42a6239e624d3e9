/** Lets who wants a key alone in among those who share it. */

import type { Timer } from "../values/clock.js";
import type { Table } from "./table.js";

/** For how long those who share a key may refuse somebody before no more of them join. */
const PATIENCE_MS = 50;
/** For how long they stay away at most, and then may join again. */
const LONGEST_MS = 60_000;

/** The gate of one who waits. */
export class Gate {
  #timer: Timer | undefined;
  #open: (() => void) | undefined;

  constructor(private readonly table: Table) {}

  /** Notes that those who share `key` have refused whoever waits. */
  refused(key: string): void {
    this.#timer ??= this.table.clock.setTimeout(() => this.#close(key), PATIENCE_MS);
  }

  /** Ends the wait: whoever shares the key may join again. */
  leave(): void {
    this.table.clock.clearTimeout(this.#timer);
    this.#open?.();
    this.#open = undefined;
  }

  #close(key: string): void {
    const { clock } = this.table;
    this.#open = this.table.closeGate(key, LONGEST_MS);
    // A key has one gate, so who finds another's looks again.
    const ms = this.#open === undefined ? PATIENCE_MS : LONGEST_MS;
    this.#timer = clock.setTimeout(() => {
      this.leave();
      this.#timer = clock.setTimeout(() => this.#close(key), ms);
    }, ms);
  }
}
