/** `backend.lock()`: waiting for a lock and holding it. */

import { acquireUntilHeld } from "./acquisition.js";
import { decorateAcquireResult, disposalOptions, isDecorated, readDisposal } from "./handle.js";
import { optionNames, WAITING, warnOfUnknown } from "../options/warnings.js";
import type { BackendCapabilities, HeldLock, LockBackend, SyncGuardBackend } from "./types.js";
import { checkObject, resolveTtl } from "../options/validation.js";

const OPTIONS = optionNames(
  "backend.lock()",
  ["ttlMs", "signal", "acquisition", "onReleaseError", "disposeTimeoutMs", "owner"],
  WAITING,
);

/** The `lock` method of the backend that `self` returns. */
export function createLockMethod<C extends BackendCapabilities>(
  self: () => LockBackend<C>,
): SyncGuardBackend<C>["lock"] {
  return async (key, given) => {
    const options = given ?? {};
    checkObject(options, "options");
    warnOfUnknown(options, OPTIONS);
    const { signal, acquisition } = options;
    const { onReleaseError, disposeTimeoutMs } = readDisposal(options);
    const backend = self();
    const held = await acquireUntilHeld(backend, {
      key,
      ttlMs: resolveTtl(options.ttlMs),
      owner: options.owner ?? undefined,
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
