/** The results of a store's operations. */

import { LockError, type LockErrorCode } from "./errors.js";

export type Acquired = {
  /** Of several locks, that of the first. */
  lockId: string;
  /** Of several locks, that of the first. */
  fence: string;
  expiresAtMs: number;
  fenceNearLimit: boolean;
  /** The number of the slot, if it is one. */
  slot?: number;
  /** The locks, where they are several. */
  locks?: readonly AcquiredLock[];
  waitStats?: WaitStats;
};

/** One of several locks, or a slot, or one that is shared. */
export type AcquiredLock = {
  key: string;
  slot: number | null;
  /** Of one that is shared. */
  mode?: "shared" | undefined;
  lockId: string;
  fence: string;
};

/** Somebody holds the lock. */
export type Locked = {
  /** Of several claims, the key that is held. */
  lockedKey: string | undefined;
  busy?: Busy | undefined;
};

/** What a store has said of a lock that stood in the way. */
export type Busy = StoredLabels & {
  /** The key of the lock, if somebody waited for it. For a slot, it is the key that all slots share. */
  key?: string;
  /** When it ends by itself and somebody else can have it, in milliseconds from then on. */
  retryAfterMs?: number;
};

/** What waiting for a lock took. */
export type WaitStats = {
  readonly attempts: number;
  readonly contended: number;
  readonly wakeups: number;
  /** How long ago the store was asked for the lock that it has granted, in milliseconds. */
  readonly lastMs: number | undefined;
};

export type Absence = "expired" | "not-found";

/** One of several locks was gone when they were to be extended, or a script was to run under them. `lock` is its place. */
export type MissingLock = { readonly absence: Absence; readonly lock: number };

/** What is stored with a lock for people and other systems to read. Backends of your own may ignore it. */
export interface LockLabels {
  /**
   * A label to store with the lock, at most 255 bytes of UTF-8, by which people see who holds it. Default: the host's name and the id
   * of the process. `null` stores none.
   */
  owner?: string | null | undefined;
}

/** The labels that are given for a lock, in place of those by default. */
export type GivenLabels = { [Name in keyof LockLabels]?: string | null };

/** The labels that are stored with a lock. */
export type StoredLabels = { [Name in keyof LockLabels]?: string };

export type RawRecord = StoredLabels & {
  key: string;
  lockId: string;
  expiresAtMs: number;
  acquiredAtMs: number;
  fence: string;
  readAtMs: number;
  /** Whether the key is shared: it is the lock of one of those who share it, or found by the key, that of all. */
  isShared?: boolean;
};

/** A result in JSON. */
export type Text = { text: string };

/** A failed operation. {@link settle} makes it a LockError. */
export class Failure {
  constructor(
    readonly code: LockErrorCode,
    readonly message: string,
    readonly causes: readonly string[],
    readonly waitStats?: WaitStats,
    /** What the store has said of the lock that stood in the way. */
    readonly busy?: Busy,
  ) {}

  /** The same failure, with a further reason behind its message. */
  followedBy(reason: string): Failure {
    const message = `${this.message}: ${reason}`;
    return new Failure(this.code, message, this.causes, this.waitStats, this.busy);
  }

  toError(): LockError {
    let cause: Error | undefined;
    for (let index = this.causes.length - 1; index >= 0; index -= 1) {
      cause = new Error(this.causes[index], cause && { cause });
      // It happened in Rust, where there is no JavaScript stack.
      cause.stack = `${cause.name}: ${cause.message}`;
    }
    const context = { ...this.busy, ...(cause && { cause }) };
    return new LockError(
      this.code,
      this.message,
      Object.keys(context).length === 0 ? undefined : context,
    );
  }
}

/**
 * Gives the result of an operation, or throws its failure. Call this in the async function that has awaited the operation, so that
 * the error has the stack of its caller.
 */
export function settle<T>(result: T | Failure): T {
  if (result instanceof Failure) throw result.toError();
  return result;
}
