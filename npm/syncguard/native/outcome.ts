/** What operations of a store give. */

import { LockError, type LockErrorCode } from "./errors.js";

export type Acquired = {
  lockId: string;
  fence: string;
  expiresAtMs: number;
  fenceNearLimit: boolean;
  effort?: Effort;
};

/** What waiting for a lock took. */
export type Effort = {
  readonly attempts: number;
  readonly contended: number;
  readonly wakeups: number;
  /** How long ago the store was asked for the lock that it has granted, in milliseconds. */
  readonly lastMs: number | undefined;
};

export type Absence = "expired" | "not-found";

export type RawRecord = {
  key: string;
  lockId: string;
  expiresAtMs: number;
  acquiredAtMs: number;
  fence: string;
  owner?: string;
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
    readonly effort?: Effort,
  ) {}

  toError(): LockError {
    let cause: Error | undefined;
    for (let index = this.causes.length - 1; index >= 0; index -= 1) {
      cause = new Error(this.causes[index], cause && { cause });
      // What happened there has no JavaScript stack.
      cause.stack = `${cause.name}: ${cause.message}`;
    }
    return new LockError(this.code, this.message, cause && { cause });
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
