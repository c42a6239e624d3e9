/** Backends on stores that the addon has opened. */

import type { Store } from "../native/store.js";
import { createBackendOn, type StoreMembersOf } from "./backend.js";
import type { DisposalOptions } from "./arguments.js";
import { CoreHeartbeats } from "./core-heartbeats.js";
import type { BackendCapabilities, BackendTransport, SyncGuardBackend } from "./types.js";

/** Puts the public interface around a store of the addon, whose core extends locks. */
export function createBackend<C extends BackendCapabilities>(
  store: Store,
  options: DisposalOptions,
  transport?: BackendTransport,
  members?: StoreMembersOf,
): SyncGuardBackend<C> {
  return createBackendOn<C>(store, options, {
    heartbeats: (options) => new CoreHeartbeats(options),
    direct: store,
    transport,
    members,
  });
}
