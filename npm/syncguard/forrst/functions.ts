/** The extension's system functions. */

import { rawData } from "../watching/diagnostics.js";
import { directAccess } from "../holding/internals.js";
import { failureReason } from "../values/mutation.js";
import type { BackendCapabilities, SyncGuardBackend } from "../values/types.js";
import { LockError } from "../native/errors.js";
import type { ForrstFound } from "../native/exports.js";
import { readSignal } from "../native/signal.js";
import { optionNames, refuseUnknown } from "../options/names.js";
import { checkObject } from "../options/validation.js";
import { Refusal, ReleaseCall, rules, URNS } from "./rules.js";
import type {
  AtomicLock,
  AtomicLockCallOptions,
  AtomicLockFunction,
  AtomicLockOptions,
  ForrstRequest,
} from "./types.js";

type Run = (request: ForrstRequest, signal: AbortSignal | undefined) => Promise<unknown>;

export function createFunctions<C extends BackendCapabilities>(
  backend: SyncGuardBackend<C>,
  { authorize }: AtomicLockOptions,
): AtomicLock["functions"] {
  const release: Run = async (request, signal) => {
    const call = new ReleaseCall(request.call.arguments);
    const { key } = call;
    const direct = directAccess(backend);
    if (direct !== undefined) {
      await direct(key, signal, (store) => store.perform(signal, call.start));
      return call.answer();
    }
    const { lockId } = call.owned(await find(backend, key, signal));
    // By its lock id, so that a newer lock on the same key is not touched.
    const result = await backend.release({ lockId, signal });
    return call.released(result.ok ? undefined : (failureReason(result) ?? "not-found"));
  };

  const forceRelease: Run = async (request, signal) => {
    const key = rules.keyArgument(request.call.arguments);
    const allowed: unknown = await authorize?.(request);
    if (allowed !== true) throw rules.forbidden(key);
    const result = await backend.forceRelease(key, { signal });
    return rules.forceReleaseResult(key, result.ok);
  };

  const status: Run = async (request, signal) => {
    const key = rules.keyArgument(request.call.arguments);
    return rules.statusResult(key, await find(backend, key, signal));
  };

  return Object.freeze({
    [URNS.release]: serve(release),
    [URNS.forceRelease]: serve(forceRelease),
    [URNS.status]: serve(status),
  });
}

const CALL_OPTIONS = optionNames("the call", ["signal"]);

/** The signal among the options of a call. */
export function readCallOptions(options: AtomicLockCallOptions): AbortSignal | undefined {
  checkObject(options, "options");
  refuseUnknown(options, CALL_OPTIONS);
  return readSignal(options.signal);
}

function serve(run: Run): AtomicLockFunction {
  return async (request, options = {}) => {
    checkObject(request, "request");
    checkObject(request.call, "request.call");
    const signal = readCallOptions(options);
    const { protocol, id } = request;
    try {
      return { protocol, id, result: await run(request, signal) };
    } catch (refusal) {
      if (refusal instanceof Refusal) return refusal.responseTo(request);
      throw refusal;
    }
  };
}

/** The lock on `key`, with its raw identifiers, which lookups otherwise hide. */
async function find<C extends BackendCapabilities>(
  backend: SyncGuardBackend<C>,
  key: string,
  signal: AbortSignal | undefined,
) {
  const info = await backend.lookup({ key, signal });
  if (info === null) return null;
  const { acquiredAtMs, expiresAtMs } = info;
  const { lockId, owner, readAtMs } = rawData(info) ?? {};
  if (lockId === undefined || readAtMs === undefined) {
    throw new LockError("Internal", "lookups of this backend do not show who owns a lock", { key });
  }
  const found: ForrstFound & { lockId: string } = { acquiredAtMs, expiresAtMs, lockId, readAtMs };
  if (owner !== undefined) found.owner = owner;
  return found;
}
