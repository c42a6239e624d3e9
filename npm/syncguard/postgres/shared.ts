/** Native connections that several backends on one client share. */

import type { Store } from "../native/store.js";
import { invalid } from "../options/validation.js";
import { openPostgres, type PostgresLocks } from "./addon.js";
import type { Target } from "./target.js";

type Shared = { store: Store; users: number };

/** The backends that stand in for each client, by their settings. */
const backends = new WeakMap<object, Map<string, Shared>>();

/** The backend for `client` with these settings: that of others, while they use it. */
export function shareBackend(client: object, target: Target, locks: PostgresLocks): Store {
  const ofClient = backends.get(client) ?? new Map<string, Shared>();
  backends.set(client, ofClient);
  const { connection, password } = target;
  const name = JSON.stringify([connection, locks, password !== undefined]);
  const shared = ofClient.get(name) ?? {
    store: openPostgres(connection, locks, password),
    users: 0,
  };
  ofClient.set(name, shared);
  shared.users += 1;
  return lease(shared.store, async () => {
    shared.users -= 1;
    if (shared.users > 0) {
      await shared.store.finishBackground();
      return;
    }
    ofClient.delete(name);
    await shared.store.close();
  });
}

/** `store` for one of its users: closing it ends what this user does with it, and nothing else. */
function lease(store: Store, giveBack: () => Promise<void>): Store {
  let closing: Promise<void> | undefined;
  const open = (): Store => {
    if (closing !== undefined) throw invalid("the backend is closed");
    return store;
  };
  return {
    capabilities: store.capabilities,
    acquire: (...args) => open().acquire(...args),
    release: (...args) => open().release(...args),
    extend: (...args) => open().extend(...args),
    isLocked: (...args) => open().isLocked(...args),
    lookupByKey: (...args) => open().lookupByKey(...args),
    lookupByLockId: (...args) => open().lookupByLockId(...args),
    forceRelease: (...args) => open().forceRelease(...args),
    setupSchema: () => open().setupSchema(),
    finishBackground: () => store.finishBackground(),
    close: () => (closing ??= giveBack()),
  };
}
