/** The public interface of a backend, around a store. */

import { setImmediate } from "node:timers";
import { addContext, LockError } from "../native/errors.js";
import { type Failure, settle } from "../native/outcome.js";
import { checkAborted, readSignal } from "../native/signal.js";
import type { HoldSettings } from "../native/exports.js";
import type { Store } from "../native/store.js";
import { ShortLivedMap } from "../native/short-lived-map.js";
import type { Wait } from "../native/wait.js";
import { checkObject, invalid } from "../options/validation.js";
import { optionNames, refuseUnknown, warnOfUnknown } from "../options/names.js";
import {
  checkKey,
  checkLockId,
  checkTtl,
  checkTtlOfLock,
  type DisposalOptions,
  readOwner,
} from "./arguments.js";
import { type Heartbeats, readAutoExtend } from "./auto-extend.js";
import { attachRawData, type RawIdentifiers, sanitizeLockInfo } from "./diagnostics.js";
import { hearsOfLoss, hearsOfWaits, isTimed, publisher, publishOperations } from "./channels.js";
import { type Clock, systemClock } from "./clock.js";
import { TIME_TOLERANCE_MS } from "./defaults.js";
import { Grants } from "./grants.js";
import { addHandle, noLock, readDisposal, rememberDisposal } from "./handle.js";
import { Handle } from "./held.js";
import { endById, type Holding, type Ids, movedById } from "./holding.js";
import { keep } from "./keeping.js";
import { register } from "./known.js";
import { createLockMethod } from "./lock.js";
import { failure } from "./mutation.js";
import { releaseInBackground } from "./release.js";
import { createReleaseAll } from "./release-all.js";
import type {
  BackendCapabilities,
  BackendTransport,
  DecoratedAcquireResult,
  HeldLock,
  KeyLookup,
  LockBackend,
  OwnershipLookup,
  SyncGuardBackend,
} from "./types.js";
import { hashKey, logFenceWarning } from "./values.js";

/** Read when this module is loaded, so that fake timers in users' tests cannot delay closing a backend. */
const afterMicrotasks = setImmediate;

const ACQUIRE_OPTIONS = optionNames("acquire()", ["key", "ttlMs", "signal", "owner", "autoExtend"]);

const FORCE_OPTIONS = optionNames("forceRelease()", ["signal"]);

/** A store of locks, as far as every backend needs it. */
export type LockStore = Omit<Store, "perform" | "setupSchema" | "list" | "facts" | "watch">;

type Taken<C extends BackendCapabilities> =
  HeldLock<C> | Extract<DecoratedAcquireResult<C>, { ok: false }>;
type AcquireArguments = Parameters<SyncGuardBackend["acquire"]>[0];

/** Those who extend a lock from its grant on. */
export interface LockKeeper {
  /** What the store is to know. */
  readonly settings: HoldSettings;
  granted(ids: Ids): Holding;
  stop(): void;
}

/** Runs an operation as the backend runs its own: with its checks before, with the key in errors, and `close()` waits. */
export type Guarded = <T>(
  key: string,
  signal: AbortSignal | undefined,
  operation: () => Promise<T | Failure>,
) => Promise<T>;

/** What differs between the addon's stores and others. */
export type Means = {
  readonly clock?: Clock;
  /** Makes the keeper of a lock, if the store extends locks itself. */
  readonly keeper?: (heartbeats: Heartbeats) => LockKeeper;
  readonly transport?: BackendTransport | undefined;
};

/**
 * Puts the public interface around a store. Asynchronous methods reject and never throw. Wrong arguments are found before
 * the first `await`, so the promise is already rejected when the caller gets it.
 */
export function createBackendOn<C extends BackendCapabilities>(
  store: LockStore,
  options: DisposalOptions,
  { clock = systemClock, keeper: createKeeper, transport }: Means,
): { backend: SyncGuardBackend<C>; guarded: Guarded } {
  const disposal = readDisposal(options);
  const declared: BackendCapabilities & { backend: string } = store.capabilities;
  const capabilities: Readonly<C> = Object.freeze({ ...declared }) as never;

  let closing: Promise<void> | undefined;
  let isClosed = false;
  const close = (): Promise<void> => (closing ??= finish());
  const checkOpen = (): void => {
    if (closing !== undefined) throw closed();
  };
  /** Why nobody may wait any more, if so. */
  const refusal = (): unknown => {
    try {
      checkOpen();
      grants.check();
    } catch (error) {
      return error;
    }
    return undefined;
  };
  /** Of direct operations, too, those that run are counted here. */
  const grants = new Grants(clock, () => store.refuseWaiters());
  /** How many wait for each lock, or are about to. */
  const waiting = new ShortLivedMap<string, number>();

  /** Waits until no acquisition can be granted a lock any more. Until then, releases are still allowed. */
  async function finish(): Promise<void> {
    store.refuseWaiters();
    await grants.idle();
    // lock() checks its signals once more after an attempt, and then releases by itself. It does so in this turn of the
    // event loop, however many wrappers are in between.
    await new Promise<void>((resolve) => {
      afterMicrotasks(resolve);
    });
    await grants.idle();
    isClosed = true;
    await store.close();
  }

  /** Extends a lock that was checked; for its holder and for heartbeats. */
  const extend: LockBackend["extend"] = async ({ lockId, ttlMs, signal }) => {
    const outcome = settle(await store.extend(lockId, ttlMs, signal));
    return typeof outcome === "number" ? { ok: true, expiresAtMs: outcome } : failure(outcome);
  };

  /** Takes a lock; with a `wait`, once it is free. */
  const take = async (opts: AcquireArguments, wait?: Wait): Promise<Taken<C>> => {
    const { key, ttlMs } = given(opts);
    let isCounted = false;
    let keeper: LockKeeper | undefined;
    try {
      checkKey(key);
      checkTtlOfLock(ttlMs);
      const owner = readOwner(opts.owner);
      const heartbeats = readAutoExtend(opts.autoExtend, ttlMs);
      const signal = startingSignal(opts);
      checkOpen();
      grants.check();
      warnOfUnknown(opts, ACQUIRE_OPTIONS);
      grants.start();
      isCounted = true;
      if (wait !== undefined) waiting.set(key, (waiting.get(key) ?? 0) + 1);
      let startedMs = clock.elapsed();
      if (heartbeats !== undefined) keeper = createKeeper?.(heartbeats);
      const hold = keeper?.settings;
      const grant = settle(await store.acquire(key, ttlMs, owner, signal, wait, hold));
      if (grant === null) {
        keeper?.stop();
        return noLock();
      }
      // It was asked for the lock then, after it had waited.
      if (wait?.lastMs !== undefined) startedMs = clock.elapsed() - wait.lastMs;
      const { lockId, fence, expiresAtMs } = grant;
      const handle = new Handle(key, startedMs + ttlMs, clock, ttlMs);
      handle.ok = true;
      handle.lockId = lockId;
      handle.expiresAtMs = expiresAtMs;
      handle.fence = fence;
      Handle.complete(handle);
      if (signal?.aborted === true) {
        // Granted at the moment of the abort: a caller who has cancelled does not expect a lock.
        grants.add(handle);
        releaseInBackground(backend, lockId, key, disposal.onReleaseError);
        checkAborted(signal);
      }
      if (keeper !== undefined) Handle.keep(handle, keeper.granted({ key, lockId }));
      const isOver =
        keeper === undefined
          ? // Within the tolerance nobody else gets it, however short it is. On Firestore the core alone knows when
            // its time began.
            capabilities.timeAuthority === "server" &&
            clock.elapsed() >= startedMs + Math.max(ttlMs, TIME_TOLERANCE_MS)
          : Handle.isLost(handle);
      if (isOver) {
        // The core had it in time, and then this thread was blocked.
        grants.add(handle);
        releaseInBackground(backend, lockId, key, disposal.onReleaseError);
        throw new LockError(
          "NetworkTimeout",
          `the lock was granted too late: when its grant was read, its time of ${ttlMs} ms was over`,
        );
      }
      if (grant.fenceNearLimit) logFenceWarning(fence, hashKey(key));
      const held = addHandle(handle, backend, lockId, key, disposal) as unknown as HeldLock<C>;
      rememberDisposal(held, disposal);
      if (disposal.onLost !== undefined) Handle.tell(handle, disposal.onLost);
      if (isTimed()) Handle.time(handle);
      if (hearsOfLoss()) {
        Handle.onLost(handle, (report) => {
          publish({ type: "lost", result: "fail", key, lockId, ...report });
        });
      }
      if (keeper === undefined && heartbeats !== undefined) {
        keep(clock, { extend }, held, key, ttlMs, startedMs, heartbeats);
      }
      grants.add(handle);
      if (grants.phase !== "granting") {
        // While releaseAll() runs, it releases this lock, too.
        if (grants.phase === "over")
          releaseInBackground(backend, lockId, key, disposal.onReleaseError);
        grants.check();
      }
      return held;
    } catch (error) {
      keeper?.stop();
      if (wait !== undefined && isCounted && (error as Partial<LockError>).code === "Aborted") {
        // Of those who wait, the store knows only that they are not to wait any more.
        throw addContext(refusal() ?? error, key);
      }
      throw addContext(error, key);
    } finally {
      if (isCounted) {
        if (wait !== undefined) {
          const others = (waiting.get(key) ?? 1) - 1;
          if (others > 0) waiting.set(key, others);
          else waiting.delete(key);
        }
        grants.end();
      }
    }
  };

  const backend: SyncGuardBackend<C> = {
    capabilities,
    ...(transport === undefined ? {} : { transport }),

    acquire: (opts) => take(opts),

    release: async (opts) => {
      const { lockId } = given(opts);
      try {
        checkLockId(lockId);
        const signal = startingSignal(opts);
        if (isClosed) {
          throw closed();
        }
        endById(lockId);
        grants.start();
        const handle = grants.take(lockId);
        try {
          const lastsMs = handle && Math.ceil(Handle.lastsMs(handle));
          // Those who wait for it hear of it.
          let key = handle && Handle.key(handle);
          if (key !== undefined && !waiting.has(key)) key = undefined;
          const outcome = settle(await store.release(lockId, signal, lastsMs, key));
          if (outcome === true) {
            if (handle !== undefined) Handle.released(handle);
            return { ok: true };
          }
          if (handle !== undefined) Handle.gone(handle);
          return failure(outcome);
        } catch (error) {
          if (handle !== undefined) {
            Handle.released(handle);
            grants.add(handle);
          }
          throw error;
        } finally {
          grants.end();
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
        const startedMs = clock.elapsed();
        const result = await extend({ lockId, ttlMs, signal });
        const endMs = result.ok ? startedMs + ttlMs : undefined;
        movedById(lockId, endMs);
        if (endMs !== undefined) grants.extended(lockId, endMs, ttlMs);
        return result;
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

    forceRelease: async (key, more) => {
      try {
        checkKey(key);
        const options = more ?? {};
        checkObject(options, "options");
        refuseUnknown(options, FORCE_OPTIONS);
        const signal = startingSignal(options);
        checkOpen();
        const released = settle(await store.forceRelease(key, signal));
        return released ? { ok: true } : failure("not-found");
      } catch (error) {
        throw addContext(error, key);
      }
    },

    lock: createLockMethod(() => backend),
    releaseAll: createReleaseAll(() => backend),
    close,
    [Symbol.asyncDispose]: close,
  };

  const publish = publisher(declared.backend, transport);
  publishOperations(backend, publish, clock);

  const guarded: Guarded = async (key, signal, operation) => {
    try {
      checkAborted(signal);
      checkOpen();
      grants.start();
      try {
        return settle(await operation());
      } finally {
        grants.end();
      }
    } catch (error) {
      throw addContext(error, key);
    }
  };
  register(backend, {
    origin: backend,
    clock,
    isOurs: true,
    extends: true,
    get reports() {
      return isTimed();
    },
    acquire: backend.acquire,
    take: take,
    runHeld: undefined,
    get waited() {
      return hearsOfWaits() ? publish : undefined;
    },
    grants,
  });
  return { backend, guarded };
}

/** A race while the process shuts down is no wrong argument, so it is an error of its own. */
function closed(): LockError {
  return new LockError("Aborted", "the backend is closed");
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
