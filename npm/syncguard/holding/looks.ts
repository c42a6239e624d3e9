/** Locks that nobody extends: once another server may keep them, those are asked after whose loss somebody would notice. */

import { setTimeout as pause } from "node:timers/promises";
import { Failure } from "../native/outcome.js";
import type { Store } from "../native/store.js";
import type { Lease } from "./lease.js";

/** The pause before a server is asked again that cannot answer yet, and how often it is asked. */
const PAUSE_MS = 200;
const TRIES = 15;

export class Looks {
  private readonly leases = new Set<Lease>();
  private isTold = false;
  /** Weak: the store's addon keeps what it tells. */
  private readonly store: WeakRef<Pick<Store, "lookupByLockId" | "whenAnotherServer">>;

  constructor(store: Store) {
    this.store = new WeakRef(store);
  }

  /** Somebody would notice the loss of the lock from now on. */
  add(lease: Lease): void {
    this.leases.add(lease);
    if (this.isTold) return;
    this.isTold = true;
    this.store.deref()?.whenAnotherServer(() => this.lookAtAll());
  }

  /** It is not held any more. */
  delete(lease: Lease): void {
    this.leases.delete(lease);
  }

  /** The nearest end first. What is asked at once goes to the store together. */
  private lookAtAll(): void {
    const leases = [...this.leases].sort((a, b) => a.leftMs() - b.leftMs());
    for (const lease of leases) {
      for (const lockId of lease.lockIds) void this.look(lease, lockId);
    }
  }

  private async look(lease: Lease, lockId: string): Promise<void> {
    for (let tries = 0; tries < TRIES && this.leases.has(lease); tries += 1) {
      const found = await this.store.deref()?.lookupByLockId(lockId);
      if (found instanceof Failure) await pause(PAUSE_MS, undefined, { ref: false });
      else {
        // It may have been released by its id meanwhile.
        if (found === null && lease.lockIds.includes(lockId)) lease.lostInStore(lockId);
        return;
      }
    }
  }
}
