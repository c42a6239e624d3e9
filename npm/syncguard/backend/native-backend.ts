/** Makes backends on stores that the addon has opened. */

import type { Store } from "../native/store.js";
import { createBackendOn, type StoreMembersOf } from "./backend.js";
import type { DisposalOptions } from "../values/arguments.js";
import type { StoreWarnings } from "../watching/store-warnings.js";
import { CoreHeartbeats } from "../holding/core-heartbeats.js";
import { Looks } from "../holding/looks.js";
import type { BackendCapabilities, SyncGuardBackend } from "../values/types.js";
import type { BackendTransport } from "../options/backend-transport.js";

/** Puts the public interface around a store of the addon, whose core extends locks. */
export function createBackend<C extends BackendCapabilities>(
  store: Store,
  options: DisposalOptions,
  transport?: BackendTransport,
  members?: StoreMembersOf,
  warnings?: StoreWarnings,
): SyncGuardBackend<C> {
  return createBackendOn<C>(store, options, {
    heartbeats: (options) => new CoreHeartbeats(options, store),
    looks: new Looks(store),
    direct: store,
    transport,
    members,
    warnings,
  });
}
