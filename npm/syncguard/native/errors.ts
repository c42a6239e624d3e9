/**
 * What went wrong: one of nine codes that mean the same on every backend
 * (docs/errors.md).
 *
 * - `ServiceUnavailable`: the store cannot be reached or cannot serve now
 * - `AuthFailed`: credentials or access refused
 * - `InvalidArgument`: the input or the configuration is wrong
 * - `RateLimited`: the store or the connection pool is overloaded
 * - `NetworkTimeout`: no answer in time; the store may have done what was asked
 * - `AcquisitionTimeout`: waiting for a lock took longer than allowed
 * - `LockLost`: a lock that was held has ended, or somebody has put it out; the reason of a handle's `signal`
 * - `Aborted`: an `AbortSignal` cancelled the operation
 * - `Internal`: anything else
 */
export type LockErrorCode =
  | "ServiceUnavailable"
  | "AuthFailed"
  | "InvalidArgument"
  | "RateLimited"
  | "NetworkTimeout"
  | "AcquisitionTimeout"
  | "LockLost"
  | "Aborted"
  | "Internal";

/** What a {@link LockError} is about. It contains raw identifiers, so do not log it as it is. */
export interface LockErrorContext {
  /**
   * The lock's key; of several, that of the one that is gone, or else of the first that was not released by its id; of
   * `AcquisitionTimeout`, that of the one that stood in the way.
   */
  key?: string | undefined;
  /** The lock's id; of several as for the key. */
  lockId?: string | undefined;
  /**
   * Of `AcquisitionTimeout`, where the store has said so: milliseconds until the lock that stood in the way ends by itself and somebody
   * else can have it. Its holder may release it before, or extend it.
   */
  retryAfterMs?: number | undefined;
  /** Of `AcquisitionTimeout`: the label with which somebody has taken that lock. */
  owner?: string | undefined;
  /** Of several locks, the keys of all. */
  keys?: readonly string[] | undefined;
  /** Of several locks, the ids of all. */
  lockIds?: readonly string[] | undefined;
  /** The error underneath. */
  cause?: unknown;
}

// The same symbol in every copy of this module, whatever its format or version.
const BRAND: unique symbol = Symbol.for("syncguard.LockError") as never;

/**
 * The error type of this package: every rejection that is not an error of your own callback has it.
 *
 * `instanceof` recognises the errors of every entry point, of ESM and CommonJS, and of a second installed copy. The key
 * and the lock id are in `context`, and neither in the message nor in what `console.log` prints.
 *
 * @example
 * ```ts
 * import { lock, LockError } from "syncguard";
 *
 * try {
 *   await lock(() => console.log("writing"), { key: "report:nightly" });
 * } catch (error) {
 *   if (!(error instanceof LockError)) throw error; // what your function threw
 *   if (error.code === "AcquisitionTimeout") console.log("somebody else is on it");
 *   else console.error(error.code, error.message);
 * }
 * ```
 */
export class LockError extends Error {
  /** What went wrong. */
  code: LockErrorCode;
  /** What it is about, when known. Not enumerable, so that printing the error shows no key. */
  declare context?: LockErrorContext | undefined;

  /**
   * An error for a backend of your own to throw.
   *
   * @param code - what went wrong
   * @param message - for people; the code by default
   * @param context - what the error is about; `context.cause` also becomes the error's `cause`
   */
  constructor(code: LockErrorCode, message?: string, context?: LockErrorContext) {
    super(message ?? code);
    this.code = code;
    hide(this, BRAND, true);
    setContext(this, context);
  }

  /** Recognises the errors of other copies of this class. Subclasses behave as usual. */
  static override [Symbol.hasInstance](value: unknown): boolean {
    if (this !== LockError) {
      return Function.prototype[Symbol.hasInstance].call(this, value);
    }
    return typeof value === "object" && value !== null && BRAND in value;
  }
}

// The name is on the prototype, because the stack is captured before the constructor could set it.
hide(LockError.prototype, "name", "LockError");

/** Adds the key and the lock id to an error, because errors of the addon have none. For several locks, `all` has theirs. Returns the same error. */
export function addContext(
  error: unknown,
  key: string | undefined,
  lockId?: string,
  all?: Pick<LockErrorContext, "keys" | "lockIds">,
): unknown {
  if (error instanceof LockError) {
    const context: LockErrorContext = { ...all, ...error.context };
    if (typeof key === "string") context.key ??= key;
    if (typeof lockId === "string") context.lockId ??= lockId;
    setContext(error, context);
  }
  return error;
}

/** An `InvalidArgument` error. */
export function invalid(message: string): LockError {
  return new LockError("InvalidArgument", message);
}

function setContext(error: LockError, context?: LockErrorContext): void {
  hide(error, "context", context);
  if (context?.cause !== undefined) hide(error, "cause", context.cause);
}

function hide(target: object, name: PropertyKey, value: unknown): void {
  Object.defineProperty(target, name, {
    value,
    enumerable: false,
    writable: true,
    configurable: true,
  });
}
