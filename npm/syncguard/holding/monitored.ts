/** Finds the lease of a lock that is released or extended by its id, through any backend, if somebody would notice its loss. */

import { ShortLivedMap } from "../native/short-lived-map.js";
import type { Lease } from "./lease.js";

const monitored = new ShortLivedMap<string, Lease>();

/** Adds a lease, because from now on somebody would notice its loss. */
export function monitor(lease: Lease): void {
  for (const lockId of lease.lockIds) monitored.set(lockId, lease);
}

/** Removes these locks of a lease. */
export function unmonitor(lease: Lease, lockIds: readonly string[]): void {
  for (const lockId of lockIds) if (monitored.get(lockId) === lease) monitored.delete(lockId);
}

/** The lease of the lock with this id, if somebody would notice its loss. */
export function monitoredLease(lockId: string): Lease | undefined {
  return monitored.size > 0 ? monitored.get(lockId) : undefined;
}
