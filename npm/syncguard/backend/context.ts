/** The context that all operations of a backend share. */

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

/** The operations of a store that every backend needs. */
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
  | "clientIsConnected"
>;

/** The heartbeats of a store that extends locks itself, for one lock from its grant on. */
export interface StoreHeartbeats {
  /** The options of the heartbeats for the store. */
  readonly settings: HoldSettings;
  granted(lease: Lease): void;
  stop(): void;
}

export type BackendContext = {
  readonly store: LockStore;
  readonly clock: Clock;
  readonly capabilities: BackendCapabilities;
  /** The terms on which its locks are held, unless whoever acquires one wants others. */
  readonly terms: Terms;
  /** The granted locks. They also say what is still allowed, and count what is under way, direct operations included. */
  readonly grants: Grants;
  readonly waiters: Waiters;
  /** Makes the heartbeats of a lock, if the store extends locks itself. */
  readonly createHeartbeats: ((options: HeartbeatOptions) => StoreHeartbeats) | undefined;
  readonly leases: StoreLeases;
  /** The backend as the handles of its locks use it. */
  readonly access: () => HolderAccess;
};
