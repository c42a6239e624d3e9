/** The public interface of a backend, around a store that the addon has opened. */

import { setImmediate } from "node:timers";
import { addContext } from "../native/errors.js";
import { settle } from "../native/operations.js";
import { checkAborted, readSignal } from "../native/signal.js";
import type { Store } from "../native/store.js";
import { invalid } from "../options/validation.js";
import { optionNames, warnOfUnknown } from "../options/warnings.js";
import { attemptOf } from "./waiting.js";
import { checkKey, checkLockId, checkTtl, readOwner } from "./arguments.js";
import { markExtending, readAutoExtend } from "./auto-extend.js";
import { attachRawData, type RawIdentifiers, sanitizeLockInfo } from "./diagnostics.js";
import { allowDirect, type Direct } from "./direct.js";
import {
  addHandle,
  type DisposalOptions,
  noLock,
  readDisposal,
  rememberDisposal,
} from "./handle.js";
import { Handle } from "./held.js";
import { endById, movedById } from "./holding.js";
import { NativeKeeper } from "./keeping.js";
import { createLockMethod } from "./lock.js";
import { failure } from "./mutation.js";
import { releaseInBackground } from "./release.js";
import { waitAs } from "./turns.js";
import type {
  BackendCapabilities,
  HeldLock,
  KeyLookup,
  OwnershipLookup,
  SyncGuardBackend,
} from "./types.js";
import { hashKey, logFenceWarning } from "./values.js";

/** Read when this module is loaded, so that fake timers in users' tests cannot delay closing a backend. */
const afterMicrotasks = setImmediate;

const ACQUIRE_OPTIONS = optionNames("acquire()", ["key", "ttlMs", "signal", "owner", "autoExtend"]);

/**
 * Puts the public interface around a store. Asynchronous methods reject and never throw. Wrong arguments are found before
 * the first `await`, so the promise is already rejected when the caller gets it.
 */
export function createBackend<C extends BackendCapabilities>(
  store: Store,
  options: DisposalOptions,
): SyncGuardBackend<C> {
  const disposal = readDisposal(options);
  const declared: BackendCapabilities & { backend: string } = store.capabilities;
  const capabilities: Readonly<C> = Object.freeze({ ...declared }) as never;

  let closing: Promise<void> | undefined;
  let isClosed = false;
  const close = (): Promise<void> => (closing ??= finish());
  const checkOpen = (): void => {
    if (closing !== undefined) throw invalid("the backend is closed");
  };
  /**
   * How many releases and direct operations run, plus the acquisitions that can be cancelled, because a cancelled acquisition
   * releases the lock that it may still be granted.
   */
  let running = 0;
  let lastEnded: (() => void) | undefined;
  const ended = (): void => {
    running -= 1;
    if (running === 0) lastEnded?.();
  };

  /** Waits until no cancelled acquisition can be granted a lock any more. Until then, releases are still allowed. */
  async function finish(): Promise<void> {
    await idle();
    // lock() checks its signals once more after an attempt, and then releases by itself. It does so in this turn of the
    // event loop, however many wrappers are in between.
    await new Promise<void>((resolve) => {
      afterMicrotasks(resolve);
    });
    await idle();
    isClosed = true;
    await store.close();
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
      const { key, ttlMs } = given(opts);
      let isCounted = false;
      let keeper: NativeKeeper | undefined;
      try {
        checkKey(key);
        checkTtl(ttlMs);
        const owner = readOwner(opts.owner);
        const heartbeats = readAutoExtend(opts.autoExtend, ttlMs);
        const signal = startingSignal(opts);
        checkOpen();
        warnOfUnknown(opts, ACQUIRE_OPTIONS);
        if (signal !== undefined) {
          running += 1;
          isCounted = true;
        }
        const one = attemptOf(opts);
        const startedMs = performance.now();
        if (heartbeats !== undefined) keeper = new NativeKeeper(heartbeats);
        const hold = keeper?.settings;
        const grant = settle(
          await store.acquire(key, ttlMs, owner, one?.limitMs, signal, one?.behind, hold),
        );
        if (typeof grant === "number") {
          keeper?.stop();
          if (one !== undefined && grant > 0) one.freeInMs = grant;
          return noLock();
        }
        const { lockId, fence, expiresAtMs } = grant;
        if (signal?.aborted === true) {
          // Granted at the moment of the abort: a caller who has cancelled does not expect a lock.
          releaseInBackground(backend, lockId, key, disposal.onReleaseError);
          checkAborted(signal);
        }
        if (grant.fenceNearLimit) logFenceWarning(fence, hashKey(key));
        const handle = new Handle(key, startedMs + ttlMs);
        handle.ok = true;
        handle.lockId = lockId;
        handle.expiresAtMs = expiresAtMs;
        handle.fence = fence;
        const held = addHandle(handle, backend, lockId, key, disposal) as unknown as HeldLock<C>;
        rememberDisposal(held, disposal);
        if (keeper !== undefined) Handle.keep(handle, keeper.granted({ key, lockId }));
        return held;
      } catch (error) {
        keeper?.stop();
        throw addContext(error, key);
      } finally {
        if (isCounted) ended();
      }
    },

    release: async (opts) => {
      const { lockId } = given(opts);
      try {
        checkLockId(lockId);
        const signal = startingSignal(opts);
        if (isClosed) {
          throw invalid(
            "the backend is closed: nothing was released, and a lock that is held ends with its TTL",
          );
        }
        endById(lockId);
        running += 1;
        try {
          const outcome = settle(await store.release(lockId, signal));
          return outcome === true ? { ok: true } : failure(outcome);
        } finally {
          ended();
        }
      } catch (error) {
        throw addContext(error, undefined, lockId);
      }
    },

    extend: async (opts) => {
      const { lockId, ttlMs } = given(opts);
      try {
        checkLockId(lockId);
        checkTtl(ttlMs);
        const signal = startingSignal(opts);
        checkOpen();
        const startedMs = performance.now();
        const outcome = settle(await store.extend(lockId, ttlMs, signal));
        const isHeld = typeof outcome === "number";
        movedById(lockId, isHeld ? startedMs + ttlMs : undefined);
        return isHeld ? { ok: true, expiresAtMs: outcome } : failure(outcome);
      } catch (error) {
        throw addContext(error, undefined, lockId);
      }
    },

    isLocked: async (opts) => {
      const { key } = given(opts);
      try {
        checkKey(key);
        const signal = startingSignal(opts);
        checkOpen();
        return settle(await store.isLocked(key, signal));
      } catch (error) {
        throw addContext(error, key);
      }
    },

    lookup: async (opts: KeyLookup | OwnershipLookup) => {
      const asked = given<Partial<KeyLookup & OwnershipLookup>>(opts);
      const [key, lockId] = [asked.key ?? undefined, asked.lockId ?? undefined];
      if ((key === undefined) === (lockId === undefined)) {
        throw invalid("lookup needs either a key or a lockId");
      }
      try {
        if (lockId === undefined) checkKey(key);
        else checkLockId(lockId);
        const signal = startingSignal(opts);
        checkOpen();
        const record = settle(
          lockId === undefined
            ? await store.lookupByKey(key as string, signal)
            : await store.lookupByLockId(lockId, signal),
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
        checkKey(key);
        const signal = startingSignal(options ?? {});
        checkOpen();
        const released = settle(await store.forceRelease(key, signal));
        return released ? { ok: true } : failure("not-found");
      } catch (error) {
        throw addContext(error, key);
      }
    },

    lock: createLockMethod(() => backend),
    close,
    [Symbol.asyncDispose]: close,
  };

  const direct: Direct = async (key, signal, operation) => {
    try {
      checkAborted(signal);
      checkOpen();
      running += 1;
      try {
        return settle(await operation(store));
      } finally {
        ended();
      }
    } catch (error) {
      throw addContext(error, key);
    }
  };
  const watch = (key: string, onFreed: () => void) => store.watch(key, onFreed);
  // On SQLite, others look each millisecond or so whether something was freed.
  const othersLagMs = declared.backend === "sqlite" ? 3 : 0;
  waitAs(backend, { checksKeys: true, othersLagMs, watch, queues: new Map() });
  return markExtending(allowDirect(backend, direct));
}

/** The signal of an operation that is about to start, if there is one. */
function startingSignal(opts: { signal?: AbortSignal | undefined }): AbortSignal | undefined {
  const signal = readSignal(opts.signal);
  checkAborted(signal);
  return signal;
}

/** Checks that an operation was given an object of arguments. */
function given<Options extends object>(opts: Options): Options {
  if (typeof opts !== "object" || opts === null) {
    throw invalid("the operation needs an options object");
  }
  return opts;
}
