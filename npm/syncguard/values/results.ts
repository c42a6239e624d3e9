// What operations give.

import type { StoredLabels } from "../native/outcome.js";
import type { BackendCapabilities } from "./capabilities.js";
import type { Fence, HashId } from "./names.js";

/** A granted lock. Times are milliseconds since the Unix epoch, on the backend's clock. */
export type AcquireOk<C extends BackendCapabilities> = {
  /** The lock was granted. */
  ok: true;
  /** Proof of ownership: whoever knows it can release and extend the lock. */
  lockId: string;
  /** When the lock ends. */
  readonly expiresAtMs: number;
} & (C["supportsFencing"] extends true
  ? {
      /** The fencing token: larger than that of every earlier lock on the key. */
      fence: Fence;
    }
  : // eslint-disable-next-line @typescript-eslint/no-empty-object-type -- adds nothing to the intersection
    {});

/** A granted lock, or `{ ok: false }` because somebody holds it. */
export type AcquireResult<C extends BackendCapabilities> =
  | AcquireOk<C>
  | {
      /** The lock was not granted. */
      ok: false;
      /** Somebody holds it. */
      reason: "locked";
      /**
       * Milliseconds until the lock that stood in the way ends by itself and somebody else can have it, by the store's clock and at
       * that moment; absent if the store has not said so. Its holder may release it before, or extend it.
       */
      retryAfterMs?: number | undefined;
      /** The label with which it was taken, if it has one. */
      owner?: string | undefined;
    };

/**
 * Whether the lock was released; `{ ok: false }` if it was gone before.
 *
 * A release whose answer was lost is repeated. If the store then has no such lock, the one before counts as done: `{ ok: true }`.
 */
export type ReleaseResult =
  | {
      /** This call has released the lock. */
      ok: true;
    }
  | {
      /** The lock had ended, was released before, or was taken by somebody else. */
      ok: false;
    };

/** When the lock ends now; `{ ok: false }` if it was gone before. */
export type ExtendResult =
  | {
      /** The lock was extended. */
      ok: true;
      /** When it ends now, in milliseconds since the Unix epoch, on the backend's clock. */
      expiresAtMs: number;
    }
  | {
      /** The lock had ended, was released before, or was taken by somebody else: it is not yours any more. */
      ok: false;
    };

/** A lock as lookups show it: hashes in place of the identifiers. */
export type LockInfo<C extends BackendCapabilities> = {
  /** The fingerprint of the key: `hashKey(key)`. */
  keyHash: HashId;
  /** The fingerprint of the lock id: `hashKey(lockId)`. */
  lockIdHash: HashId;
  /** When the lock ends, in milliseconds since the Unix epoch. */
  expiresAtMs: number;
  /** When the lock was granted, in milliseconds since the Unix epoch. */
  acquiredAtMs: number;
} & (C["supportsFencing"] extends true
  ? {
      /** The fencing token of the lock. */
      fence: Fence;
    }
  : {
      /** The fencing token of the lock, if the backend has them. */
      fence?: Fence;
    });

/** A lock with its raw identifiers. Sensitive: for debugging only. */
export type LockInfoDebug<C extends BackendCapabilities> = LockInfo<C> &
  StoredLabels & {
    /** The key. */
    key: string;
    /** The lock id: whoever knows it can release the lock. */
    lockId: string;
  };
