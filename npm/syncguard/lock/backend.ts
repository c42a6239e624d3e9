/** The public interface of a backend, around a store. */

import { setImmediate } from "node:timers";
import { addContext, LockError } from "../native/errors.js";
import { type Acquired, type AcquiredLock, settle } from "../native/outcome.js";
import { checkAborted, readSignal } from "../native/signal.js";
import type { HoldSettings } from "../native/exports.js";
import type { Store } from "../native/store.js";
import { ShortLivedMap } from "../native/short-lived-map.js";
import type { Wait } from "../native/wait.js";
import { checkObject, invalid } from "../options/validation.js";
import { optionNames, refuseUnknown, warnOfUnknown } from "../options/names.js";
import {
  checkKey,
  checkTtl,
  checkTtlOfLock,
  type DisposalOptions,
  LABELS,
  readLabels,
} from "./arguments.js";
import { type HeartbeatOptions, readAutoExtend } from "./auto-extend.js";
import { attachRawData, sanitizeLockInfo } from "./diagnostics.js";
import { publisher } from "./channels.js";
import { type Clock, systemClock } from "./clock.js";
import { TIME_TOLERANCE_MS } from "./defaults.js";
import { observe } from "./events.js";
import { Grants } from "./grants.js";
import { createHandle, noLock, readDisposal } from "./handle.js";
import { startHeartbeats } from "./heartbeats.js";
import { Lease, monitoredLease } from "./lease.js";
import {
  type AcquireArguments,
  type DirectAccess,
  type Operations,
  setInternals,
} from "./internals.js";
import { type LockTarget, readTarget } from "./claims.js";
import { constants } from "../native/constants.js";
import { storedKey } from "../native/slots.js";
import { runLeader } from "./lead.js";
import { createLockMethod } from "./lock.js";
import { failure, goneLock } from "./mutation.js";
import { runOnce } from "./once.js";
import { releaseInBackground } from "./reports.js";
import { createReleaseAll } from "./release-all.js";
import type {
  BackendCapabilities,
  BackendTransport,
  DecoratedAcquireResult,
  HeldLock,
  KeyLookup,
  LockOp,
  LocksOp,
  OwnershipLookup,
  SyncGuardBackend,
} from "./types.js";
import { hashKey, logFenceWarning, validateLockId } from "./values.js";

/** Read when this module is loaded, so that fake timers in users' tests cannot delay closing a backend. */
const afterMicrotasks = setImmediate;

const ACQUIRE_OPTIONS = optionNames("acquire()", [
  ...["key", "claims", "ttlMs", "signal", "autoExtend", ...LABELS],
  // What lock() has read already.
  "target",
  // That of `once()`.
  "due",
]);

const FORCE_OPTIONS = optionNames("forceRelease()", ["signal"]);

/** A store of locks, as far as every backend needs it. */
export type LockStore = Omit<
  Store,
  "perform" | "setupSchema" | "list" | "facts" | "watch" | "check" | "eval"
>;

type TakeResult<C extends BackendCapabilities> =
  HeldLock<C> | Extract<DecoratedAcquireResult<C>, { ok: false }>;

/** Those who extend a lock from its grant on. */
export interface StoreHeartbeats {
  /** What the store is to know. */
  readonly settings: HoldSettings;
  granted(lease: Lease): void;
  stop(): void;
}

/** Makes what the handles of a lock can do on one store alone. */
export type StoreMembersOf = (lease: Lease, direct: DirectAccess) => object;

/** What differs between the addon's stores and others. */
export type BackendParts = {
  readonly clock?: Clock;
  /** Sends the heartbeats of a lock, if the store extends locks itself. */
  readonly heartbeats?: (options: HeartbeatOptions) => StoreHeartbeats;
  /** The addon's store, which other operations may be carried out on as one call. */
  readonly direct?: Store;
  readonly transport?: BackendTransport | undefined;
  /** What the handles of a lock have beside the methods of all, with how to reach the addon's store. */
  readonly members?: StoreMembersOf | undefined;
};

/**
 * Puts the public interface around a store. Asynchronous methods reject and never throw. Wrong arguments are found before
 * the first `await`, so the promise is already rejected when the caller gets it.
 */
export function createBackendOn<C extends BackendCapabilities>(
  store: LockStore,
  options: DisposalOptions,
  { clock = systemClock, heartbeats: createHeartbeats, direct, transport, members }: BackendParts,
): SyncGuardBackend<C> {
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
    grants.refuseWaiters();
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
  const extend: Operations<C>["extend"] = async ({ ttlMs, signal, ...ids }) => {
    const outcome = settle(await store.extend(joinedIds(ids), ttlMs, signal));
    if (typeof outcome === "number") return { ok: true, expiresAtMs: outcome };
    return typeof outcome === "object"
      ? failure(outcome.absence, outcome.lock)
      : failure(outcome, 0);
  };

  const giveBack = ({ key, ids }: Lease): void =>
    releaseInBackground(backend, ids, key, disposal.onReleaseError);

  /** Takes a lock; with a `wait`, once it is free. */
  const take = async (opts: AcquireArguments, wait?: Wait): Promise<TakeResult<C>> => {
    const { ttlMs } = given(opts);
    const target = targetOf(opts);
    const { key, claims } = target;
    let isCounted = false;
    let heartbeats: StoreHeartbeats | undefined;
    try {
      if (claims === undefined) checkKey(key);
      checkTtlOfLock(ttlMs);
      const labels = readLabels(opts);
      const autoExtend = readAutoExtend(opts.autoExtend, ttlMs);
      const signal = startingSignal(opts);
      checkOpen();
      grants.check();
      warnOfUnknown(opts, ACQUIRE_OPTIONS);
      grants.start();
      isCounted = true;
      if (wait !== undefined) waits(target, 1);
      let startedMs = clock.elapsed();
      if (autoExtend !== undefined) heartbeats = createHeartbeats?.(autoExtend);
      const hold = heartbeats?.settings;
      const wanted = { claims, labels, hold, due: opts.due };
      const grant = settle(await store.acquire(key, ttlMs, wanted, signal, wait));
      if ("text" in grant) {
        heartbeats?.stop();
        return { ...noLock(undefined), done: JSON.parse(grant.text) as unknown } as TakeResult<C>;
      }
      if ("lockedKey" in grant) {
        heartbeats?.stop();
        return noLock(givenKey(target, grant.lockedKey));
      }
      const nowMs = clock.elapsed();
      // It was asked for the lock then, after it had waited.
      if (wait?.lastMs !== undefined) startedMs = nowMs - wait.lastMs;
      const { lockId, fence, fenceNearLimit } = grant;
      const locks = locksOf(target, grant);
      const lease = new Lease(key, lockId, clock, nowMs, startedMs + ttlMs, ttlMs, locks);
      grants.add(lease);
      if (signal?.aborted === true) {
        // Granted at the moment of the abort: a caller who has cancelled does not expect a lock.
        giveBack(lease);
        checkAborted(signal);
      }
      heartbeats?.granted(lease);
      const isOver =
        heartbeats === undefined
          ? // Within the tolerance nobody else gets it, however short it is. On Firestore the core alone knows when
            // its time began.
            capabilities.timeAuthority === "server" &&
            nowMs >= startedMs + Math.max(ttlMs, TIME_TOLERANCE_MS)
          : lease.isLost();
      if (isOver) {
        // The core had it in time, and then this thread was blocked.
        giveBack(lease);
        throw new LockError(
          "NetworkTimeout",
          `the lock was granted too late: when its grant was read, its time of ${ttlMs} ms was over`,
        );
      }
      if (fenceNearLimit) logFenceWarning(fence, hashKey(key));
      lease.onLost = disposal.onLost;
      lease.stream = stream;
      lease.due = opts.due;
      if (onStore !== undefined) lease.ofStore = members?.(lease, onStore);
      const handle = createHandle(backend, lease, grant, disposal, target.isSet);
      if (heartbeats === undefined && autoExtend !== undefined) {
        startHeartbeats({ extend }, handle, lease, ttlMs, startedMs, autoExtend);
      }
      if (grants.phase !== "granting") {
        // While releaseAll() runs, it releases this lock, too.
        if (grants.phase === "over") giveBack(lease);
        grants.check();
      }
      return handle as unknown as HeldLock<C>;
    } catch (error) {
      heartbeats?.stop();
      if (wait !== undefined && isCounted && (error as Partial<LockError>).code === "Aborted") {
        // Of those who wait, the store knows only that they are not to wait any more.
        throw addContext(refusal() ?? error, key);
      }
      throw addContext(error, key);
    } finally {
      if (isCounted) {
        if (wait !== undefined) waits(target, -1);
        grants.end();
      }
    }
  };

  /** Counts those who wait for each key. */
  function waits({ key, claims }: LockTarget, more: 1 | -1): void {
    for (const name of claims?.map((claim) => claim.key) ?? [key]) {
      const others = (waiting.get(name) ?? 0) + more;
      if (others > 0) waiting.set(name, others);
      else waiting.delete(name);
    }
  }

  /** Those of several locks for which others of this process wait. */
  const waitedFor = (locks: readonly AcquiredLock[]): string[] =>
    locks.flatMap((lock) => (waiting.has(lock.key) ? [storedKey(lock)] : []));

  const operations: Operations<C> = {
    take,

    release: async (opts, lease) => {
      const ids: Partial<LockOp> = given(opts);
      try {
        const lockId = joinedIds(opts);
        const { due } = opts;
        const signal = startingSignal(opts);
        if (isClosed) throw closed();
        grants.start();
        const monitored = monitoredLease(lockId);
        monitored?.end();
        const own = grants.take(lockId);
        try {
          const lastsMs = own && Math.ceil(own.lastsMs);
          // Those who wait for it hear of it.
          const isOne = own !== undefined && own.locks === undefined;
          const key = isOne && waiting.has(own.key) ? own.key : undefined;
          const keys = own?.locks && waitedFor(own.locks);
          const outcome = settle(
            lease !== undefined && due !== undefined
              ? await store.finish(lockId, lease.key, due, lastsMs)
              : await store.release(lockId, signal, lastsMs, key, keys),
          );
          if (outcome === true || (typeof outcome === "object" && outcome.every(Boolean))) {
            (own ?? monitored)?.released();
            return { ok: true };
          }
          const which = typeof outcome === "object" ? outcome.indexOf(false) : 0;
          own?.gone(which);
          return failure(typeof outcome === "object" ? "not-found" : outcome, which);
        } catch (error) {
          if (own !== undefined) {
            own.released();
            grants.add(own);
          }
          throw error;
        } finally {
          grants.end();
        }
      } catch (error) {
        throw addContext(error, undefined, ids.lockId);
      }
    },

    extend: async (opts) => {
      const ids: Partial<LockOp> = given(opts);
      const { ttlMs } = opts;
      try {
        const lockId = joinedIds(opts);
        checkTtl(ttlMs);
        const signal = startingSignal(opts);
        checkOpen();
        const startedMs = clock.elapsed();
        const result = await extend({ ...opts, ttlMs, signal });
        if (result.ok) {
          (grants.get(lockId) ?? monitoredLease(lockId))?.moved(startedMs + ttlMs, ttlMs);
        } else {
          monitoredLease(lockId)?.lostInStore(goneLock(result));
        }
        return result;
      } catch (error) {
        throw addContext(error, undefined, ids.lockId);
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

    lookup: async (opts) => {
      const lookup = given<Partial<KeyLookup & OwnershipLookup>>(opts);
      const [key, lockId] = [lookup.key ?? undefined, lookup.lockId ?? undefined];
      if ((key === undefined) === (lockId === undefined)) {
        throw invalid("lookup needs either a key or a lockId");
      }
      try {
        if (lockId === undefined) checkKey(key);
        else validateLockId(lockId);
        const signal = startingSignal(opts);
        checkOpen();
        const record = settle(
          lockId === undefined
            ? await store.lookupByKey(key as string, signal)
            : await store.lookupByLockId(lockId, signal),
        );
        if (record === null) return null;
        return attachRawData(sanitizeLockInfo<C>(record, capabilities), record);
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
  };

  /** Runs another operation on the addon's store as the backend runs its own. */
  const runOn =
    (on: Store): DirectAccess =>
    async (key, signal, operation) => {
      try {
        checkAborted(signal);
        checkOpen();
        grants.start();
        try {
          return settle(await operation(on));
        } finally {
          grants.end();
        }
      } catch (error) {
        throw addContext(error, key);
      }
    };

  const onStore = direct === undefined ? undefined : runOn(direct);
  const stream = publisher(declared.backend, transport);
  const observed = observe(operations, stream, clock, true);
  const backend: SyncGuardBackend<C> = {
    capabilities,
    ...(transport === undefined ? {} : { transport }),
    acquire: ((opts: AcquireArguments) => observed.take(opts)) as SyncGuardBackend<C>["acquire"],
    release: (opts: LockOp | LocksOp) => observed.release(opts),
    extend: (opts: (LockOp | LocksOp) & { ttlMs: number }) => observed.extend(opts),
    isLocked: (opts) => observed.isLocked(opts),
    lookup: (opts: KeyLookup | OwnershipLookup) => observed.lookup(opts),
    forceRelease: (key, more) => observed.forceRelease(key, more),
    lock: createLockMethod(() => backend),
    lead: async (key, fn, options) => await runLeader(backend, key, fn, options),
    once: async (key, options, fn) => await runOnce(backend, key, options, fn),
    releaseAll: createReleaseAll(() => backend),
    close,
    [Symbol.asyncDispose]: close,
  };
  setInternals(backend, {
    origin: backend,
    clock,
    operations: observed,
    stream,
    grants,
    ...(onStore === undefined ? {} : { direct: onStore }),
  });
  return backend;
}

/** What is asked for, as `lock()` has read it or as the caller of `acquire()` has given it. */
function targetOf(opts: AcquireArguments): LockTarget {
  if (opts.target !== undefined) return opts.target;
  if (opts.claims === undefined || opts.claims === null) return { key: opts.key };
  if ((opts.key ?? undefined) !== undefined) throw invalid("key cannot be given beside claims");
  if (!Array.isArray(opts.claims)) throw invalid("claims must be an array");
  return readTarget(opts.claims);
}

/** Each of the locks that were granted, if several were asked for, or a slot. */
function locksOf(
  target: LockTarget,
  { locks, slot, lockId, fence }: Acquired,
): AcquiredLock[] | undefined {
  if (locks !== undefined) {
    return locks.map((one) => ({ ...one, key: givenKey(target, one.key) ?? one.key }));
  }
  if (slot === undefined && target.isSet !== true) return undefined;
  // The addon answers one claim as it answers a key.
  return [{ key: target.key, slot: slot ?? null, lockId, fence }];
}

/** A key as its claim has given it, and not in NFC. */
function givenKey({ claims }: LockTarget, key: string | undefined): string | undefined {
  return claims?.find((claim) => claim.key.normalize() === key)?.key ?? key;
}

/**
 * The lock ids with commas between.
 *
 * @throws LockError `InvalidArgument`
 */
function joinedIds(ids: Partial<LockOp & LocksOp>): string {
  const { lockId, lockIds } = ids;
  if (lockIds === undefined || lockIds === null) {
    validateLockId(lockId as string);
    return lockId as string;
  }
  if (lockId !== undefined) throw invalid("lockId cannot be given beside lockIds");
  if (!Array.isArray(lockIds) || lockIds.length === 0) {
    throw invalid("lockIds must be an array that is not empty");
  }
  for (const id of lockIds as readonly string[]) validateLockId(id);
  if (lockIds.length > constants.maxClaims) {
    throw invalid(`lockIds must not name more than ${constants.maxClaims} locks`);
  }
  if (new Set(lockIds).size < lockIds.length) {
    throw invalid("lockIds must not contain a lock id twice");
  }
  return lockIds.join();
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
