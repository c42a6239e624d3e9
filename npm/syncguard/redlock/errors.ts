import type { ExecutionStats } from "./types.js";

/** Somebody holds one of the resources, or the lock is gone. */
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

/** An operation was not carried out. Its `cause` says why: a {@link ResourceLockedError} or a `LockError`. */
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
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = "ExecutionError";
    this.attempts = attempts;
  }
}
