/** Native connections that several backends on one client share. */

import type { PostgresNativeLocks } from "./addon.js";
import { core, type Native } from "./native.js";
import type { Target } from "./postgres-target.js";
import { invalid } from "./validation.js";

type Shared = { native: Native; users: number };

/** The backends that stand in for each client, by their settings. */
const backends = new WeakMap<object, Map<string, Shared>>();

/** The backend for `client` with these settings: that of others, while they use it. */
export function shareBackend(client: object, target: Target, locks: PostgresNativeLocks): Native {
  const ofClient = backends.get(client) ?? new Map<string, Shared>();
  backends.set(client, ofClient);
  const { connection, password } = target;
  const name = JSON.stringify([connection, locks, password !== undefined]);
  const shared = ofClient.get(name) ?? {
    native: core.createPostgresBackend(connection, locks, password),
    users: 0,
  };
  ofClient.set(name, shared);
  shared.users += 1;
  return lease(shared.native, async () => {
    shared.users -= 1;
    if (shared.users > 0) {
      await shared.native.finishBackground();
      return;
    }
    ofClient.delete(name);
    await shared.native.close();
  });
}

/** `native` for one of its users: closing it ends what this user does with it, and nothing else. */
function lease(native: Native, giveBack: () => Promise<void>): Native {
  let closing: Promise<void> | undefined;
  const open = (): Native => {
    if (closing !== undefined) throw invalid("the backend is closed");
    return native;
  };
  return {
    capabilities: native.capabilities,
    acquire: (...args) => open().acquire(...args),
    release: (...args) => open().release(...args),
    extend: (...args) => open().extend(...args),
    isLocked: (...args) => open().isLocked(...args),
    lookupByKey: (...args) => open().lookupByKey(...args),
    lookupByLockId: (...args) => open().lookupByLockId(...args),
    forceRelease: (...args) => open().forceRelease(...args),
    setupSchema: () => open().setupSchema(),
    finishBackground: () => native.finishBackground(),
    close: () => (closing ??= giveBack()),
  };
}
