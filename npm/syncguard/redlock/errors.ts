import type { ExecutionStats } from "./types.js";

/**
 * Somebody holds one of the resources, or the lock is gone.
 *
 * @example
 * ```ts
 * import Redlock, { ExecutionError, ResourceLockedError } from "syncguard/redlock";
 *
 * const redlock = new Redlock(["redis://localhost:6379"]);
 * try {
 *   await redlock.acquire(["report"], 5_000, { retryCount: 0 });
 * } catch (error) {
 *   if (!(error instanceof ExecutionError)) throw error;
 *   if (error.cause instanceof ResourceLockedError) console.log("somebody else is on it");
 * }
 * ```
 */
export class ResourceLockedError extends Error {
  /**
   * An error with that message.
   *
   * @param message - for people
   */
  constructor(message: string) {
    super(message);
    this.name = "ResourceLockedError";
  }
}

/**
 * An operation was not carried out. Its `cause` says why: a {@link ResourceLockedError} or a `LockError`.
 *
 * @example
 * ```ts
 * import Redlock, { ExecutionError, ResourceLockedError } from "syncguard/redlock";
 *
 * const redlock = new Redlock(["redis://localhost:6379"]);
 * try {
 *   await redlock.acquire(["report"], 5_000, { retryCount: 0 });
 * } catch (error) {
 *   if (!(error instanceof ExecutionError)) throw error;
 *   if (error.cause instanceof ResourceLockedError) console.log("somebody else is on it");
 * }
 * ```
 */
export class ExecutionError extends Error {
  /** The attempts: one stands for all. */
  readonly attempts: ReadonlyArray<Promise<ExecutionStats>>;

  /**
   * An error with that message.
   *
   * @param message - for people
   * @param attempts - how the votes were
   * @param options - the cause
   */
  constructor(
    message: string,
    attempts: ReadonlyArray<Promise<ExecutionStats>>,
    options?: {
      /** What it came of. */
      cause?: unknown;
    },
  ) {
    super(message, options);
    this.name = "ExecutionError";
    this.attempts = attempts;
  }
}
