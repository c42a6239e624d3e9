/** The leases that somebody has to hear of when their locks are released or extended by their ids, through whatever backend. */

import { ShortLivedMap } from "../native/short-lived-map.js";
import type { Lease } from "./lease.js";

const monitored = new ShortLivedMap<string, Lease>();

/** Somebody would notice the loss of the lock from now on. */
export function monitor(lease: Lease): void {
  for (const lockId of lease.lockIds) monitored.set(lockId, lease);
}

/** Nobody would any more, of these locks. */
export function unmonitor(lease: Lease, lockIds: readonly string[]): void {
  for (const lockId of lockIds) if (monitored.get(lockId) === lease) monitored.delete(lockId);
}

/** The lock of that id, if somebody would notice its loss. */
export function monitoredLease(lockId: string): Lease | undefined {
  return monitored.size > 0 ? monitored.get(lockId) : undefined;
}
