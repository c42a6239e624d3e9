/** `backend.lock()`: waiting for a lock and holding it. */

import { acquireUntilHeld } from "./acquisition.js";
import { decorateAcquireResult, disposalOptions, isDecorated } from "./handle.js";
import type { BackendCapabilities, HeldLock, LockBackend, SyncGuardBackend } from "./types.js";
import { checkDisposal, checkObject, resolveTtl } from "./validation.js";

/** The `lock` method of the backend that `self` returns. */
export function createLockMethod<C extends BackendCapabilities>(
  self: () => LockBackend<C>,
): SyncGuardBackend<C>["lock"] {
  return async (key, options = {}) => {
    checkObject(options, "options");
    const { signal, acquisition, owner, onReleaseError, disposeTimeoutMs } = options;
    checkDisposal(onReleaseError, disposeTimeoutMs);
    const backend = self();
    const held = await acquireUntilHeld(backend, {
      key,
      ttlMs: resolveTtl(options.ttlMs),
      owner,
      signal,
      acquisition,
      onReleaseError,
    });
    if (onReleaseError === undefined && disposeTimeoutMs === undefined && isDecorated(held)) {
      return held;
    }
    const general = disposalOptions(held);
    return decorateAcquireResult(
      backend,
      held,
      key,
      onReleaseError ?? general?.onReleaseError,
      disposeTimeoutMs ?? general?.disposeTimeoutMs,
    ) as HeldLock<C>;
  };
}
