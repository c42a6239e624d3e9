/** `syncguard/forrst`: the atomic-lock extension of Forrst, `urn:forrst:ext:atomicLock`. */

import "./native/required.js";
import { createFunctions } from "./forrst/functions.js";
import { createHandle } from "./forrst/handle.js";
import { URNS } from "./forrst/rules.js";
import type { AtomicLock, AtomicLockOptions } from "./forrst/types.js";
import { checkBackend, checkDisposal } from "./values/arguments.js";
import type { BackendCapabilities, SyncGuardBackend } from "./values/types.js";
import { optionNames, refuseUnknown } from "./options/names.js";
import { checkFunction, checkObject, invalid } from "./options/validation.js";

export type {
  AtomicLock,
  AtomicLockCallOptions,
  AtomicLockFunction,
  AtomicLockFunctionName,
  AtomicLockHandle,
  AtomicLockOptions,
  ForrstError,
  ForrstExtension,
  ForrstRequest,
  ForrstResponse,
} from "./forrst/types.js";

const OPTIONS = optionNames("createAtomicLock()", ["authorize", "onReleaseError"]);

/**
 * The atomic-lock extension for a Forrst server, on any backend of this package.
 *
 * @param backend - where the locks are kept; servers exclude each other only if they use the same store
 * @param options - who may force a release, and who hears of failed ones
 * @throws LockError `InvalidArgument` for invalid options, and for a backend of your own that only implements
 *   `LockBackend`, because it has no owner labels
 * @example
 * ```ts
 * import { createAtomicLock, type ForrstRequest, type ForrstResponse } from "syncguard/forrst";
 * import { createRedisBackend } from "syncguard/redis";
 *
 * const atomicLock = createAtomicLock(createRedisBackend("redis://localhost:6379"));
 *
 * // Where the server handles a request:
 * function serve(request: ForrstRequest): Promise<ForrstResponse> {
 *   return atomicLock.handle(request, ({ id }, lock) => ({ id, result: { fence: lock?.fence } }));
 * }
 * ```
 */
export function createAtomicLock<C extends BackendCapabilities>(
  backend: SyncGuardBackend<C>,
  options: AtomicLockOptions = {},
): AtomicLock<C> {
  checkBackend(backend);
  const { forceRelease, lookup } = backend as Partial<SyncGuardBackend<C>>;
  if (typeof forceRelease !== "function" || typeof lookup !== "function") {
    throw invalid(
      "backend must be one of this package's or withTelemetry() around one:" +
        " the extension needs owner labels, lookups of them, and forceRelease()",
    );
  }
  checkObject(options, "options");
  refuseUnknown(options, OPTIONS);
  const { authorize, onReleaseError } = options;
  if (authorize !== undefined) checkFunction(authorize, "authorize");
  checkDisposal({ onReleaseError });
  const functions = createFunctions(backend, options);
  return Object.freeze({
    urn: URNS.urn,
    functions,
    handle: createHandle(backend, functions, options),
  });
}
