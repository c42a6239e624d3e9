import { constants } from "./constants.js";
import { LockError } from "./errors.js";

/** What is checked as a lock id; `null` and the like count as an empty text. */
export function lockIdText(lockId: unknown): string {
  if (typeof lockId === "string") return lockId;
  if (!lockId) return "";
  throw wrongLockId(`a value of type ${typeof lockId}`);
}

/** @param got - what is wrong with it. Not its text: with a line break at its end, it would be a lock id. */
export function wrongLockId(got: string): LockError {
  return new LockError(
    "InvalidArgument",
    `Invalid lockId format. Expected ${constants.lockIdLength} base64url characters, got: ${got}`,
  );
}

/**
 * Refuses what is not well-formed text. Lone surrogates would all become U+FFFD on the way to a store, so that two keys
 * would be one.
 */
export function checkText(text: unknown, name: string): asserts text is string {
  if (typeof text !== "string") {
    throw new LockError("InvalidArgument", `${name} must be a string`);
  }
  if (!text.isWellFormed()) {
    throw new LockError("InvalidArgument", `${name} must be well-formed Unicode`);
  }
}
