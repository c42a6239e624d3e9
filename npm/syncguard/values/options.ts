// What users say about acquiring and holding a lock, and what is told to them.

import type { LockError } from "../native/errors.js";
import type { LockLabels } from "../native/outcome.js";
import type { GrantedLock, LockMode, SlotClaim } from "./names.js";

/**
 * Called when a release fails where nothing can be thrown: at the end of an `await using` block or of `lock()`. Without such a
 * function the error is printed, with neither key nor lock id, unless `NODE_ENV` is `production` and `SYNCGUARD_DEBUG` is not
 * `true`.
 *
 * @param error - the error of the release; a thrown value that is not an `Error` is its `originalError`
 * @param context - raw identifiers, and where it happened
 */
export type OnReleaseError = (
  error: Error,
  context: {
    /** The id of the lock that was not released; of several, of the first that was not released by its id before. */
    lockId: string;
    /** Its key. */
    key: string;
    /** All of them, where several were granted together. */
    locks?: readonly Pick<GrantedLock, "key" | "lockId">[] | undefined;
    /** Where it happened: always at the end of a block or of `lock()`. */
    source: "disposal";
  },
) => void;

/**
 * Called when a lock is lost: it has ended, or was put out, while it was held. Without such a function the loss is printed, with
 * neither key nor lock id, unless `NODE_ENV` is `production` and `SYNCGUARD_DEBUG` is not `true`.
 *
 * A loss is noticed by heartbeats, by an extension, where the `signal` was asked for at the end of the lock, and in any case by the
 * release, which finds the lock gone.
 *
 * @param error - a `LockError` of the code `LockLost`, which is also the reason of the lock's `signal`
 * @param context - raw identifiers
 */
export type OnLost = (
  error: LockError,
  context: {
    /** The id of the lock; of several that were granted together, of the one that is gone, or of the first that was not released by its id if all are. */
    lockId: string;
    /** Its key. */
    key: string;
    /** All of them, where several were granted together. */
    locks?: readonly Pick<GrantedLock, "key" | "lockId">[] | undefined;
  },
) => void;

/** Whether and how a lock extends itself while it is held; `true` for the defaults. */
export type AutoExtend = boolean | AutoExtendOptions;

/** How a lock extends itself. Heartbeats that fail are tried again until the lock ends. */
export interface AutoExtendOptions {
  /** Milliseconds from one heartbeat to the next, less than the TTL. Default: a third of the TTL. */
  everyMs?: number | undefined;
  /** Milliseconds after which the lock is lost although it could be extended. Default: no limit. */
  maxMs?: number | undefined;
  /**
   * Milliseconds for which the event loop may hang: after that the lock is not extended until it turns again. Default
   * 30000.
   */
  maxStallMs?: number | undefined;
}

/** How long and how often to try. */
export interface AcquisitionOptions {
  /** Attempts after the first. Default: 10 in `lock()`; no limit in `backend.lock()`. */
  maxRetries?: number | undefined;
  /** Milliseconds before the first retry. Default 100. */
  retryDelayMs?: number | undefined;
  /** Whether the wait doubles each time. Default `"exponential"`. */
  backoff?: "exponential" | "fixed" | undefined;
  /** How far the wait grows, in milliseconds. Default: no limit in `lock()`; 5000 in `backend.lock()`. */
  maxRetryDelayMs?: number | undefined;
  /** How much of the wait is random: half of it, all of it or nothing. Default `"equal"`. */
  jitter?: "equal" | "full" | "none" | undefined;
  /** Milliseconds to wait in all. Default 5000. */
  timeoutMs?: number | undefined;
  /**
   * What ends the wait between two attempts: `"notify"`, the default, when the store tells that the lock was freed, and in
   * any case when the next retry is due; `"poll"` only the latter. An attempt that follows a message is not a retry. While
   * the store tells of releases, retries ask it less and less often, and with `"notify-only"` not before the lock would end
   * by itself: for stores that bill by command.
   */
  wait?: "notify" | "notify-only" | "poll" | undefined;
  /** Ends the waiting; has no effect once the lock is held. */
  signal?: AbortSignal | undefined;
}

/** Which lock `lock()` takes, and how. */
export interface LockConfig extends LockLabels {
  /** Names what the lock protects: at most 512 bytes of UTF-8 after NFC normalisation. */
  key: string;
  /** With it, one slot of the key is taken: {@link SlotConfig}. */
  slots?: undefined;
  /** With `"shared"`, others may hold the lock, too, who share it: {@link Claim}. Default `"exclusive"`. */
  mode?: LockMode | undefined;
  /** Milliseconds after which the lock ends by itself. Default 30000. */
  ttlMs?: number | undefined;
  /** Cancels the waiting, and aborts the signal of the callback's handle. It does not affect the release. */
  signal?: AbortSignal | undefined;
  /** Extends the lock by itself while it is held. Default: it ends with its TTL. */
  autoExtend?: AutoExtend | undefined;
  /**
   * Milliseconds for which the lock is held at least, at most `ttlMs`: if the function ends earlier, the lock ends then, and nobody
   * gets it before. Default: it is free as soon as the function has ended.
   */
  minHoldMs?: number | undefined;
  /**
   * Called when the release fails. A failed release never replaces what the callback returned or threw. Default: the
   * backend's, else the error is printed, but not in production: see {@link OnReleaseError}.
   */
  onReleaseError?: OnReleaseError | undefined;
  /** Called when the lock is lost while the function runs. Default: the backend's, else it is printed: see {@link OnLost}. */
  onLost?: OnLost | undefined;
  /**
   * Whether `lock()` is rejected with `LockLost` if the lock was lost while the function ran, in place of what the function
   * returned. What it throws comes first. Default false.
   */
  throwIfLost?: boolean | undefined;
  /** Milliseconds after which the release is aborted and no longer waited for. Default: the backend's, else no limit of its own. */
  disposeTimeoutMs?: number | undefined;
  /** How long and how often to try. */
  acquisition?: AcquisitionOptions | undefined;
}

/** {@link LockConfig} for other things than a key. */
export type LockConfigOf<What> = Omit<LockConfig, "key"> & {
  /** What to take. */
  key: What;
};

/** Options that take one slot of the key, beside which they stand, in the place of the lock on it. */
export type OfSlot<Options> = Omit<Options, "slots" | "mode"> & {
  /** At most so many hold a slot of the key at a time; 1 to 1000. */
  slots: number;
};

/** {@link LockConfig} for one slot of a key: as a claim, or with `slots` beside the key. */
export type SlotConfig = LockConfigOf<SlotClaim> | OfSlot<LockConfig>;

/** How `backend.lock()` takes the lock. */
export interface BackendLockOptions extends LockLabels {
  /** With it, one slot of the key is taken: {@link OfSlot}. */
  slots?: undefined;
  /** With `"shared"`, others may hold the lock, too, who share it: {@link Claim}. Default `"exclusive"`. */
  mode?: LockMode | undefined;
  /** Milliseconds after which the lock ends by itself. Default 30000. */
  ttlMs?: number | undefined;
  /** Cancels the waiting. */
  signal?: AbortSignal | undefined;
  /** Extends the lock by itself while it is held. Default: it ends with its TTL. */
  autoExtend?: AutoExtend | undefined;
  /** How long and how often to try. */
  acquisition?: AcquisitionOptions | undefined;
  /** Called when the release at disposal fails. Default: the backend's. */
  onReleaseError?: OnReleaseError | undefined;
  /** Called when the lock is lost. Default: the backend's, else it is printed: see {@link OnLost}. */
  onLost?: OnLost | undefined;
  /** Milliseconds after which disposal aborts the release and stops waiting for it. Default: the backend's. */
  disposeTimeoutMs?: number | undefined;
  /**
   * Milliseconds for which the lock is held at least, at most `ttlMs`: if it is released earlier, it ends then, and nobody gets it
   * before. Default: a release frees it at once.
   */
  minHoldMs?: number | undefined;
}

/** How `tryLock()` takes the lock. */
export interface TryLockOptions extends Omit<BackendLockOptions, "acquisition"> {
  /** Cancels the attempt, and aborts the signal of the callback's handle. It does not affect the release. */
  signal?: AbortSignal | undefined;
  /**
   * Whether `tryLock()` is rejected with `LockLost` if the lock was lost while the function ran, in place of what the function
   * returned. What it throws comes first. Default false.
   */
  throwIfLost?: boolean | undefined;
}

/** What came of `tryLock()`. */
export type TryLockResult<T> =
  | {
      /** The lock was free, and the function ran under it to its end. */
      ran: true;
      /** What the function has returned. */
      value: T;
    }
  | {
      /** Somebody holds the lock: the function did not run. */
      ran: false;
      /** Why. */
      reason: "locked";
      /** Of several keys, the one that is held. */
      key?: string;
      /**
       * Milliseconds until the lock that stood in the way ends by itself; absent if the store has not said so. Its holder may release it
       * before, or extend it.
       */
      retryAfterMs?: number;
      /** The label with which it was taken, if it has one. */
      owner?: string;
    };

/**
 * Called when the function of `lead()` has thrown, or a campaign has failed; `lead()` goes on. Without such a function the error is
 * printed, in production, too.
 *
 * @param error - what the function has thrown, or the error of the store
 * @param context - the raw key, and where it happened
 */
export type OnLeadError = (
  error: unknown,
  context: {
    /** The key for which was campaigned. */
    key: string;
    /** Whether the function has thrown it, or the store has failed. */
    source: "term" | "campaign";
  },
) => void;

/** How `lead()` campaigns and leads. */
export interface LeadOptions extends LockLabels {
  /** Milliseconds after which others take over from a leader that is dead or cut off. Default 30000. */
  ttlMs?: number | undefined;
  /**
   * Ends it: the campaigning at once; a term as soon as the function, whose signal is aborted with this one, has settled. Until then
   * nobody else leads.
   */
  signal?: AbortSignal | undefined;
  /** How the lock extends itself. A term ends after its `maxMs`. Default: a third of the TTL from one heartbeat to the next. */
  autoExtend?: AutoExtendOptions | undefined;
  /** Called when the function has thrown, or a campaign has failed. Default: it is printed: see {@link OnLeadError}. */
  onError?: OnLeadError | undefined;
  /** Called when the lock is lost during a term. Default: the backend's, else it is printed: see {@link OnLost}. */
  onLost?: OnLost | undefined;
}

/** Which period `once()` is asked for, and how it takes the lock. */
export interface OnceOptions extends LockLabels {
  /**
   * Names the period, or the version: a moment, a whole number that is not negative, or a text whose order is that of its
   * characters, such as an ISO date; a text of digits alone is a number. A key has either numbers or texts. At most 100 printable
   * characters of ASCII. A time of day needs a `Z` or an offset.
   */
  due: Date | number | string;
  /**
   * Whether `due` may be a moment, or a text that reads as a date, that begins more than a day after this moment of the store's clock.
   * Default: that is `InvalidArgument`, because once it is done, all that is right would count as done.
   */
  allowAhead?: boolean | undefined;
  /** Milliseconds after which the lock ends by itself, so that another process can do it if this one has died. Default 30000. */
  ttlMs?: number | undefined;
  /** Cancels the attempt, and aborts the signal of the callback's handle. */
  signal?: AbortSignal | undefined;
  /** Extends the lock by itself while the function runs. Default: it ends with its TTL. */
  autoExtend?: AutoExtend | undefined;
  /** Called when the release after a failure of the function fails. Default: the backend's. */
  onReleaseError?: OnReleaseError | undefined;
  /** Called when the lock is lost. Default: the backend's, else it is printed: see {@link OnLost}. */
  onLost?: OnLost | undefined;
  /** Milliseconds after which the release after a failure of the function is no longer waited for. Default: the backend's. */
  disposeTimeoutMs?: number | undefined;
}

/** What came of `once()`. */
export type OnceResult<T> =
  | {
      /** It ran here, to its end, and is stored as done. */
      ran: true;
      /** What the function has returned. */
      value: T;
    }
  | {
      /** It did not run here. */
      ran: false;
      /**
       * It was done before, for this period; `"ahead"`: for a later one. Then whoever asks is late, or a wrong clock has stored
       * {@link lastDue}: `syncguard mark` sets it back.
       */
      reason: "done" | "ahead";
      /** When that was stored, on the store's clock. */
      doneAt: Date;
      /** The last period that is stored as done; of a moment its milliseconds. */
      lastDue: string;
    }
  | {
      /** It did not run here. */
      ran: false;
      /** Somebody else holds the lock: they do it, or something else under the same key. */
      reason: "running";
    };

/** Options of every backend of this package. */
export interface CommonBackendOptions {
  /** Whether `isLocked()` deletes what expired more than two seconds ago. Default false. */
  cleanupInIsLocked?: boolean | undefined;
  /**
   * Called when the release at the end of an `await using` block or of `lock()` fails. Default: the error is printed, but not in
   * production: see {@link OnReleaseError}.
   */
  onReleaseError?: OnReleaseError | undefined;
  /** Called when a lock is lost. Default: it is printed, but not in production: see {@link OnLost}. */
  onLost?: OnLost | undefined;
  /** Milliseconds after which disposal aborts the release and stops waiting for it. Default: no limit of its own. */
  disposeTimeoutMs?: number | undefined;
}

/** How `acquire()` asks. */
export type AcquireOptions = LockLabels & {
  /** With it, one slot of the key is taken: {@link OfSlot}. */
  slots?: undefined;
  /** With `"shared"`, others may hold the lock, too, who share it: {@link Claim}. Default `"exclusive"`. */
  mode?: LockMode | undefined;
  /** Milliseconds after which the lock ends by itself. */
  ttlMs: number;
  /** Extends the lock by itself while it is held. Default: it ends with its TTL. */
  autoExtend?: AutoExtend | undefined;
};

/** Options of `releaseAll()`. */
export interface ReleaseAllOptions {
  /** Milliseconds after which it ends, whatever the store has answered. Default 5000. */
  timeoutMs?: number | undefined;
}

/** What `releaseAll()` has done. */
export interface ReleaseAllResult {
  /**
   * How many locks were released, by this call or by their holders when they heard of it; several that were granted together count
   * as one.
   */
  released: number;
  /** How many were gone already, also one of several. */
  gone: number;
  /**
   * An error for each lock whose release has failed or was not answered in time; such a lock ends with its TTL. Another call
   * tries them again.
   */
  failed: LockError[];
}
