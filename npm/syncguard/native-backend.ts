/** A backend of the native part as users see it. */

import { attemptTimeoutMs, markChecksKeys } from "./attempt.js";
import { attachRawData, type RawIdentifiers, sanitizeLockInfo } from "./diagnostics.js";
import { addContext } from "./errors.js";
import { logFenceWarning } from "./fence.js";
import {
  addHandle,
  type DisposalOptions,
  noLock,
  releaseInBackground,
  rememberDisposal,
} from "./handle.js";
import { createLockMethod } from "./lock-method.js";
import { failure } from "./mutation.js";
import type { Native } from "./native.js";
import { settle } from "./operations.js";
import { checkAborted } from "./signal.js";
import type {
  BackendCapabilities,
  HeldLock,
  KeyLookup,
  OwnershipLookup,
  SyncGuardBackend,
} from "./types.js";
import { checkDisposal, invalid } from "./validation.js";

/** Puts the public interface around a native backend. Everything asynchronous rejects and never throws. */
export function exposeNativeBackend<C extends BackendCapabilities>(
  native: Native,
  { onReleaseError, disposeTimeoutMs }: DisposalOptions,
): SyncGuardBackend<C> {
  checkDisposal(onReleaseError, disposeTimeoutMs);
  const disposal: DisposalOptions = { onReleaseError, disposeTimeoutMs };
  const capabilities: Readonly<C> = Object.freeze({ ...native.capabilities }) as never;

  let closing: Promise<void> | undefined;
  const close = (): Promise<void> => (closing ??= native.close());

  const backend: SyncGuardBackend<C> = {
    capabilities,

    acquire: async (opts) => {
      const { key, signal, owner } = given(opts);
      const timeoutMs = attemptTimeoutMs(opts);
      try {
        const grant = settle(await native.acquire(key, opts.ttlMs, owner, timeoutMs, signal));
        if (grant === null) return noLock();
        const { lockId, fence, expiresAtMs } = grant;
        if (signal?.aborted === true) {
          // Granted while the signal came: who cancelled does not expect a lock.
          releaseInBackground(backend, lockId, key, onReleaseError);
          checkAborted(signal);
        }
        if (grant.fenceNearLimit) logFenceWarning(fence, key);
        const granted = { ok: true, lockId, expiresAtMs, fence };
        const held = addHandle(granted, backend, lockId, key, disposal) as HeldLock<C>;
        rememberDisposal(held, disposal);
        return held;
      } catch (error) {
        throw addContext(error, key);
      }
    },

    release: async (opts) => {
      const { lockId, signal } = given(opts);
      try {
        const outcome = settle(await native.release(lockId, signal));
        return outcome === true ? { ok: true } : failure(outcome);
      } catch (error) {
        throw addContext(error, undefined, lockId);
      }
    },

    extend: async (opts) => {
      const { lockId, ttlMs, signal } = given(opts);
      try {
        const outcome = settle(await native.extend(lockId, ttlMs, signal));
        return typeof outcome === "number" ? { ok: true, expiresAtMs: outcome } : failure(outcome);
      } catch (error) {
        throw addContext(error, undefined, lockId);
      }
    },

    isLocked: async (opts) => {
      const { key, signal } = given(opts);
      try {
        return settle(await native.isLocked(key, signal));
      } catch (error) {
        throw addContext(error, key);
      }
    },

    lookup: async (opts: KeyLookup | OwnershipLookup) => {
      const { key, lockId, signal } = given<Partial<KeyLookup & OwnershipLookup>>(opts);
      if ((key === undefined) === (lockId === undefined)) {
        throw invalid("lookup needs either a key or a lockId");
      }
      try {
        const record = settle(
          lockId === undefined
            ? await native.lookupByKey(key as string, signal)
            : await native.lookupByLockId(lockId, signal),
        );
        if (record === null) return null;
        const { readAtMs } = record;
        const raw: RawIdentifiers = { key: record.key, lockId: record.lockId, readAtMs };
        if (record.owner !== undefined) raw.owner = record.owner;
        return attachRawData(sanitizeLockInfo<C>(record, capabilities), raw);
      } catch (error) {
        throw addContext(error, key, lockId);
      }
    },

    forceRelease: async (key, options) => {
      try {
        const released = settle(await native.forceRelease(key, options?.signal));
        return released ? { ok: true } : failure("not-found");
      } catch (error) {
        throw addContext(error, key);
      }
    },

    lock: createLockMethod(() => backend),
    close,
    [Symbol.asyncDispose]: close,
  };
  return markChecksKeys(backend);
}

/** The arguments of an operation, if there are any. */
function given<Options extends object>(opts: Options): Options {
  if (typeof opts !== "object" || opts === null) {
    throw invalid("the operation needs an options object");
  }
  return opts;
}
