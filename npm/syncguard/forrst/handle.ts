/** Serves a request while holding the lock that it asks for. */

import { runInside } from "../holding/chain.js";
import { CALLBACK_WAITING } from "../waiting/policies.js";
import { acquireUntilHeld } from "../waiting/waiting.js";
import type { LeaseWithHandle } from "../holding/handle.js";
import { accessTo, internalsOf } from "../holding/internals.js";
import { readHolding } from "../holding/options.js";
import { lockHandleMembers } from "../backend/lock.js";
import { reportReleaseError } from "../watching/reports.js";
import { claimsOf } from "../values/claims.js";
import type { BackendCapabilities, SyncGuardBackend } from "../values/types.js";
import { LockError } from "../native/errors.js";
import { refuseUnknown } from "../options/names.js";
import { checkFunction, checkObject, invalid } from "../options/validation.js";
import { readCallOptions } from "./functions.js";
import { readOptions, Refusal, type RequestedLock, rules, URNS } from "./rules.js";
import type {
  AtomicLock,
  AtomicLockHandle,
  AtomicLockOptions,
  ForrstRequest,
  ForrstResponse,
} from "./types.js";

export function createHandle<C extends BackendCapabilities>(
  backend: SyncGuardBackend<C>,
  functions: AtomicLock["functions"],
  { onReleaseError }: AtomicLockOptions,
): AtomicLock<C>["handle"] {
  return async (request, next, options = {}) => {
    checkObject(request, "request");
    checkFunction(next, "next");
    const signal = readCallOptions(options);
    const name: unknown = (request as Partial<ForrstRequest>).call?.function;
    if (isFunctionOf(functions, name)) return await functions[name](request, options);

    let requested: RequestedLock | undefined;
    try {
      requested = readRequest(request, name);
    } catch (error) {
      if (error instanceof Refusal) return error.responseTo(request);
      throw error;
    }
    if (requested === undefined) return await next(request, undefined);

    let acquired: LeaseWithHandle<C>;
    const { fullKey: key, ttlMs, owner, label, waiting } = requested;
    try {
      const acquisition = {
        target: { key },
        holding: readHolding({ ttlMs, owner: label, signal, onReleaseError }),
        acquisition: waiting,
        defaults: CALLBACK_WAITING,
        onUnknown: refuseUnknown,
      };
      acquired = await acquireUntilHeld(backend, acquisition);
    } catch (error) {
      if (!isContention(error)) throw error;
      return requested.contention().responseTo(request);
    }

    const { lease, handle } = acquired;
    const { lockId } = lease;
    /** Releases or keeps the lock after the function. Returns whether it was lost before. */
    const end = async (): Promise<boolean> => {
      if (!requested.autoRelease) return false;
      try {
        // Without the signal: if it has aborted the work, the lock must still be released.
        return !(await backend.release({ lockId })).ok;
      } catch (error) {
        reportReleaseError(error, { lockId, key }, onReleaseError);
        return false;
      }
    };
    const { origin = backend } = internalsOf(backend) ?? {};
    const members = lockHandleMembers(accessTo(backend), handle, key, lease);
    const lock: AtomicLockHandle<C> = Object.assign(members, { signal, owner });
    let response: ForrstResponse;
    try {
      response = await runInside(origin, claimsOf({ key }), lease, () => next(request, lock));
      checkResponse(response);
    } catch (error) {
      await end();
      throw error;
    }
    const lost = await end();
    return withData(response, requested.acquired(lock.expiresAtMs, lost));
  };
}

/** The lock that a request asks for; `undefined` if it does not use the extension. Throws a {@link Refusal}. */
function readRequest(request: ForrstRequest, name: unknown): RequestedLock | undefined {
  const extensions: unknown = request.extensions;
  if (extensions === undefined || extensions === null) return undefined;
  // An error, because whoever sends something else may think that a lock protects the call.
  if (!Array.isArray(extensions)) throw rules.invalidRequest("extensions", "must be an array");
  const own = extensions.filter(
    (extension: unknown) => (extension as { urn?: unknown } | null)?.urn === URNS.urn,
  ) as { options?: unknown }[];
  const [extension] = own;
  if (extension === undefined) return undefined;
  if (own.length > 1) throw rules.invalidRequest("extensions", `must have ${URNS.urn} once`);
  return readOptions(typeof name === "string" ? name : "", extension.options);
}

function isFunctionOf(
  functions: AtomicLock["functions"],
  name: unknown,
): name is keyof AtomicLock["functions"] {
  return typeof name === "string" && Object.hasOwn(functions, name);
}

function isContention(error: unknown): boolean {
  return error instanceof LockError && error.code === "AcquisitionTimeout";
}

function checkResponse(response: unknown): void {
  if (typeof response !== "object" || response === null || Array.isArray(response)) {
    throw invalid("next must return a response");
  }
  const { extensions } = response as ForrstResponse;
  if (extensions !== undefined && extensions !== null && !Array.isArray(extensions)) {
    throw invalid("next must return a response whose extensions are an array");
  }
}

/** The response with the extension's data added. The data of other extensions stay. */
function withData(response: ForrstResponse, data: unknown): ForrstResponse {
  const others = (response.extensions ?? []).filter(({ urn }) => urn !== URNS.urn);
  return { ...response, extensions: [...others, { urn: URNS.urn, data }] };
}
