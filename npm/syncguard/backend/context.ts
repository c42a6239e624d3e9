/** What the operations of a backend share. */

import type { HoldSettings } from "../native/exports.js";
import type { Store } from "../native/store.js";
import type { HeartbeatOptions } from "../values/auto-extend.js";
import type { Clock } from "../values/clock.js";
import type { Terms } from "../holding/grant.js";
import type { Grants } from "../holding/grants.js";
import type { HolderAccess } from "../holding/internals.js";
import type { Lease } from "../holding/lease.js";
import type { StoreLeases } from "../holding/store-leases.js";
import type { BackendCapabilities } from "../values/types.js";
import type { Waiters } from "../waiting/waiters.js";

/** A store of locks, as far as every backend needs it. */
export type LockStore = Omit<
  Store,
  | "perform"
  | "setupSchema"
  | "list"
  | "facts"
  | "watch"
  | "check"
  | "eval"
  | "stopHeartbeats"
  | "whenAnotherServer"
>;

/** Those who extend a lock from its grant on. */
export interface StoreHeartbeats {
  /** What the store is to know. */
  readonly settings: HoldSettings;
  granted(lease: Lease): void;
  stop(): void;
}

export type BackendContext = {
  readonly store: LockStore;
  readonly clock: Clock;
  readonly capabilities: BackendCapabilities;
  /** How its locks are held, unless whoever acquires one wants it otherwise. */
  readonly terms: Terms;
  /** They also say what is still allowed, and count what is under way: also direct operations. */
  readonly grants: Grants;
  readonly waiters: Waiters;
  /** Sends the heartbeats of a lock, if the store extends locks itself. */
  readonly createHeartbeats: ((options: HeartbeatOptions) => StoreHeartbeats) | undefined;
  readonly leases: StoreLeases;
  /** The backend as the handles of its locks use it. */
  readonly access: () => HolderAccess;
};
