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

/** More than pass between the end of an attempt and lock()'s look at it. */
const MICROTASKS_OF_LOCK = 10;

/** Puts the public interface around a native backend. Everything asynchronous rejects and never throws. */
export function exposeNativeBackend<C extends BackendCapabilities>(
  native: Native,
  { onReleaseError, disposeTimeoutMs }: DisposalOptions,
): SyncGuardBackend<C> {
  checkDisposal(onReleaseError, disposeTimeoutMs);
  const disposal: DisposalOptions = { onReleaseError, disposeTimeoutMs };
  const capabilities: Readonly<C> = Object.freeze({ ...native.capabilities }) as never;

  let closing: Promise<void> | undefined;
  const close = (): Promise<void> => (closing ??= finish());
  const checkOpen = (): void => {
    if (closing !== undefined) throw invalid("the backend has been closed");
  };
  /** How many releases run, and acquisitions that may be cancelled and then release what they were granted. */
  let running = 0;
  let lastEnded: (() => void) | undefined;
  const ended = (): void => {
    running -= 1;
    if (running === 0) lastEnded?.();
  };

  /** Releases are let through until nothing that was cancelled can be granted any more. */
  async function finish(): Promise<void> {
    await idle();
    // lock() looks at its signals once more after its attempt, and then releases by itself.
    for (let turn = 0; turn < MICROTASKS_OF_LOCK; turn += 1) await Promise.resolve();
    await idle();
    await native.close();
  }

  async function idle(): Promise<void> {
    if (running === 0) return;
    await new Promise<void>((resolve) => {
      lastEnded = resolve;
    });
  }

  const backend: SyncGuardBackend<C> = {
    capabilities,

    acquire: async (opts) => {
      const { key, signal, owner } = given(opts);
      const timeoutMs = attemptTimeoutMs(opts);
      if (signal !== undefined) running += 1;
      try {
        checkOpen();
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
      } finally {
        if (signal !== undefined) ended();
      }
    },

    release: async (opts) => {
      const { lockId, signal } = given(opts);
      running += 1;
      try {
        const outcome = settle(await native.release(lockId, signal));
        return outcome === true ? { ok: true } : failure(outcome);
      } catch (error) {
        throw addContext(error, undefined, lockId);
      } finally {
        ended();
      }
    },

    extend: async (opts) => {
      const { lockId, ttlMs, signal } = given(opts);
      try {
        checkOpen();
        const outcome = settle(await native.extend(lockId, ttlMs, signal));
        return typeof outcome === "number" ? { ok: true, expiresAtMs: outcome } : failure(outcome);
      } catch (error) {
        throw addContext(error, undefined, lockId);
      }
    },

    isLocked: async (opts) => {
      const { key, signal } = given(opts);
      try {
        checkOpen();
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
        checkOpen();
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
        checkOpen();
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
