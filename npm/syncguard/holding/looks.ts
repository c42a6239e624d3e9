/**
 * Asks the store after locks when another server may have taken over, for example after a switch of primaries. Without heartbeats, nobody
 * would notice there that they are gone. Only locks whose loss somebody would notice are asked after.
 */

import { setTimeout as pause } from "node:timers/promises";
import { Failure } from "../native/outcome.js";
import type { Store } from "../native/store.js";
import type { Lease } from "./lease.js";

/** A server that cannot answer yet is asked so often, with this pause between. */
const PAUSE_MS = 200;
const TRIES = 15;

export class Looks {
  private readonly leases = new Set<Lease>();
  private isTold = false;
  /** The lock ids that are being asked after, and whether they are to be asked after anew. */
  private readonly asked = new Map<string, boolean>();
  /** The reference is weak, because the addon keeps the function below, and with a strong one the store would live for ever. */
  private readonly store: WeakRef<Pick<Store, "lookupByLockId" | "whenAnotherServer">>;

  constructor(store: Store) {
    this.store = new WeakRef(store);
  }

  /** Adds a lock, because from now on somebody would notice its loss. */
  add(lease: Lease): void {
    this.leases.add(lease);
    if (this.isTold) return;
    this.isTold = true;
    this.store.deref()?.whenAnotherServer(() => this.lookAtAll());
  }

  /** Removes a lock that is not held any more. */
  delete(lease: Lease): void {
    this.leases.delete(lease);
  }

  /** Asks after all locks, the nearest end first. Questions that are asked at once go to the store together. */
  private lookAtAll(): void {
    for (const lease of [...this.leases].sort((a, b) => a.leftMs() - b.leftMs())) {
      for (const lockId of lease.lockIds) void this.look(lease, lockId);
    }
  }

  private async look(lease: Lease, lockId: string): Promise<void> {
    const isAsked = this.asked.has(lockId);
    this.asked.set(lockId, isAsked);
    if (isAsked) return;
    try {
      while (!(await this.isAnswered(lease, lockId)) && this.asked.get(lockId) === true) {
        this.asked.set(lockId, false);
      }
    } finally {
      this.asked.delete(lockId);
    }
  }

  /** Asks until there is an answer that counts. None is there if the store did not answer, or another server may have come since. */
  private async isAnswered(lease: Lease, lockId: string): Promise<boolean> {
    for (let tries = 0; tries < TRIES && this.isHeld(lease); tries += 1) {
      const found = await this.store.deref()?.lookupByLockId(lockId);
      if (found instanceof Failure) await pause(PAUSE_MS, undefined, { ref: false });
      else if (found !== null) return this.asked.get(lockId) !== true;
      else {
        // A lock that somebody has released by its id meanwhile is not lost.
        if (this.isHeld(lease) && lease.lockIds.includes(lockId)) lease.lostInStore(lockId);
        return true;
      }
    }
    return false;
  }

  /** Only the signal of a lock tells that its time is over, and it has its own timer. */
  private isHeld(lease: Lease): boolean {
    return this.leases.has(lease) && lease.leftMs() > 0;
  }
}
