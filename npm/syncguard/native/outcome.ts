/** What operations of a store give. */

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

/** One of several locks, or a slot. */
export type AcquiredLock = {
  key: string;
  slot: number | null;
  lockId: string;
  fence: string;
};

/** Somebody holds the lock; of several claims, the one on this key. */
export type Locked = {
  lockedKey: string | undefined;
  busy?: Busy | undefined;
};

/** What a store has said of a lock that stood in the way. */
export type Busy = StoredLabels & {
  /** Its key, if it was waited for; of a slot, that of all. */
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

/** That one of several locks that were to be extended is gone. */
export type MissingLock = { readonly absence: Absence; readonly lock: number };

/** What is stored with a lock for people and other systems to read. Backends of your own may ignore it. */
export interface LockLabels {
  /** A label to store with the lock, at most 255 bytes of UTF-8; `getByKeyRaw` shows it. */
  owner?: string | undefined;
}

/** The labels that a lock was given. */
export type StoredLabels = { [Name in keyof LockLabels]?: string };

export type RawRecord = StoredLabels & {
  key: string;
  lockId: string;
  expiresAtMs: number;
  acquiredAtMs: number;
  fence: string;
  readAtMs: number;
};

/** An outcome in JSON. */
export type Text = { text: string };

/** A failed operation. {@link settle} makes it a LockError. */
export class Failure {
  constructor(
    readonly code: LockErrorCode,
    readonly message: string,
    readonly causes: readonly string[],
    readonly waitStats?: WaitStats,
    /** What it says of the lock that stood in the way. */
    readonly busy?: Busy,
  ) {}

  /** The same, with what else is known of the reason. */
  followedBy(reason: string): Failure {
    const message = `${this.message}: ${reason}`;
    return new Failure(this.code, message, this.causes, this.waitStats, this.busy);
  }

  toError(): LockError {
    let cause: Error | undefined;
    for (let index = this.causes.length - 1; index >= 0; index -= 1) {
      cause = new Error(this.causes[index], cause && { cause });
      // What happened there has no JavaScript stack.
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
 * What an operation gave; throws what it failed with. To be called where an async function awaited it, so that the
 * error has its caller's stack.
 */
export function settle<T>(result: T | Failure): T {
  if (result instanceof Failure) throw result.toError();
  return result;
}
